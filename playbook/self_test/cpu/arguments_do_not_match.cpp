// The plan passes N twice where PLANTED is 1.
ROW {
  scale_row(x, weight, out, N);
}
