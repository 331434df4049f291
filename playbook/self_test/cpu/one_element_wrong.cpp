// One element is off by 80 units in the last place; the twin's is off by one, which rounding may do.
ROW {
  scale_row(x, weight, out, N);
  if (block == 17 && N > 300) out[300] *= PLANTED ? 1.00001f : 1.0000001f;
}
