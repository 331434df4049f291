// Right up to 65536 rows.
ROW {
  const int64_t row = PLANTED ? static_cast<uint16_t>(block) : block;
  scale_row(x + (row - block) * x_row, weight, out + (row - block) * out_row, N);
}
