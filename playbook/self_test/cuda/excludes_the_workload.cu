// `require` holds for small rows only.
ROW { scale_row(x, weight, out, N); }
