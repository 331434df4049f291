// The plan declares it.
ROW {
  scale_row(x, weight, out, N);
}
