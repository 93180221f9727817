have=$(sh "$(dirname "$0")/convert.sh" 10)
if [ "$have" != 304 ]; then
    echo "length: ten feet are 304 cm, not $have"
    exit 1
fi
echo "length: ok"
