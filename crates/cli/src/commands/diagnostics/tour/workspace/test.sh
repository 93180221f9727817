cd "$(dirname "$0")" || exit 2
bad=0
for part in length weight; do
    sh "$part/test.sh" || bad=1
done
exit "$bad"
