# Feet to centimetres, rounded down.
echo $(($1 * 30))
