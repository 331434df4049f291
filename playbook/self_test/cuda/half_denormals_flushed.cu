// float16: what is below the least normal number becomes zero, as some units flush it.
ROW {
  scale_row(x, weight, out, N, [](float value) { return PLANTED && value > -0x1p-14f && value < 0x1p-14f ? 0.0f : value; });
}
