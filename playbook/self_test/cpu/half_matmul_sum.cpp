// The sum has the dtype of the tensors; the twin's is a float.
#if PLANTED
using Sum = ak::float16;
#else
using Sum = float;
#endif
ROW {
  matmul_row<Sum>(a, b, out, N, K);
}
