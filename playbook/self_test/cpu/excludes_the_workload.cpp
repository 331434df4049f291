// Small rows only.
ROW {
  scale_row(x, weight, out, N);
}
