// The plan launches `absent` where PLANTED is 1.
ROW {
  scale_row(x, weight, out, N);
}
