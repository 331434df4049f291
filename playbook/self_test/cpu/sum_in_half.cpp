// Products are exact, the running sum has eleven bits.
#if PLANTED
using Sum = ak::float16;
#else
using Sum = float;
#endif
ROW {
  for (int64_t j = 0; j < N; ++j) {
    Sum sum = 0;
    for (int64_t k = 0; k < K; ++k) sum = static_cast<Sum>(sum + a[k] * b[k * N + j]);
    out[j] = sum;
  }
}
