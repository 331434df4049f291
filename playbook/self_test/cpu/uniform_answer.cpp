// 1/N everywhere has the right sum; the twin's answer is 1/N only where it is right.
ROW {
  softmax_row(x, out, N);
  for (int64_t i = 0; PLANTED && i < N; ++i) out[i] = 1.0f / N;
}
