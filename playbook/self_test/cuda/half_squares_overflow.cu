// The sum has the dtype of the tensors; the twin's is a float.
#if PLANTED
using Sum = __half;
#else
using Sum = float;
#endif
ROW {
  layernorm_row<Sum>(x, out, N, eps);
}
