# Runs until it is killed.
while :; do
    sleep 1
done
