// One element of an input is rounded in place.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && block == 2 && threadIdx.x == 1 && N > 1) const_cast<float*>(x)[1] += 1;
}
