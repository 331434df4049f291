// A weight is normalised in place.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && block == 0 && threadIdx.x == 0 && N > 0) const_cast<float*>(weight)[N - 1] += 1;
}
