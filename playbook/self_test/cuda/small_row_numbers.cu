// Right up to 65536 rows.
ROW {
  const int64_t row = PLANTED ? static_cast<unsigned short>(block) : block;
  scale_row(x + (row - block) * x_row, weight, out + (row - block) * out_row, N);
}
