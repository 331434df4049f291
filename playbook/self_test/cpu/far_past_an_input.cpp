// Eight kilobytes behind the weights.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && block == 0) const_cast<float*>(weight)[N + 2000] = 1;
}
