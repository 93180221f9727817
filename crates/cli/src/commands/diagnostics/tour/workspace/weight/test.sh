have=$(sh "$(dirname "$0")/convert.sh" 10)
if [ "$have" != 4535 ]; then
    echo "weight: ten pounds are 4535 g, not $have"
    exit 1
fi
echo "weight: ok"
