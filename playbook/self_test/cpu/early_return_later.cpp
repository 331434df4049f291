// The first launches compute the whole row, later ones its first half.
int64_t calls[64];
ROW {
  const bool first = block >= 64 || ++calls[block] <= 18;
  scale_row(x, weight, out, first || !PLANTED ? N : N / 2);
}
