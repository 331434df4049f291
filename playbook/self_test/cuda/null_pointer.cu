// An illegal address: the context is lost.
ROW {
  scale_row(x, weight, out, N);
  if (PLANTED && block == 0 && threadIdx.x == 0) *reinterpret_cast<volatile float*>(uint64_t{16}) = 1;
}
