# Pounds to grams, rounded down.
echo $(($1 * 450))
