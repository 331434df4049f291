// The device's compiler has no standard library.
#if PLANTED
#include <vector>
#endif
ROW { scale_row(x, weight, out, N); }
