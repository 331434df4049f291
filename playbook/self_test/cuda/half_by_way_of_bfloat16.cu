// float16: eight bits on the way to eleven.
ROW {
  scale_row(x, weight, out, N, [](float value) { return PLANTED ? in_bfloat16(value) : value; });
}
