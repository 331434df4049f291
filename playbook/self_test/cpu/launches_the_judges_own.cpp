// The plan launches `builtin.empty` first where PLANTED is 1.
ROW {
  scale_row(x, weight, out, N);
}
