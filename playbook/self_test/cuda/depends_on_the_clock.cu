// The time decides on the rounding.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && N > 0 && threadIdx.x == 0 && __popcll(clock64()) % 2 != 0) out[0] *= 1 + 0x1p-23f;
}
