// Order statistics of paired times: what may be said about a median after few samples, whatever the noise looks like.
#pragma once

#include <cstdint>
#include <vector>

namespace ak::judge {

double median(std::vector<double> values);

struct Interval {
  double low = 0, high = 0;
};

/// The confidence interval of the median by its order statistics; the whole line's ends where `values` are too few.
/// source: the number of values below the median is binomial with p = 1/2, so no distribution is assumed.
Interval median_interval(std::vector<double> values, double error_probability);

}  // namespace ak::judge
