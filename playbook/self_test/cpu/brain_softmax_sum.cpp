// The sum has the dtype of the tensors; the twin's is a float.
#if PLANTED
using Sum = ak::bfloat16;
#else
using Sum = float;
#endif
ROW {
  softmax_row<Sum>(x, out, N);
}
