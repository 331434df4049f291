// Binomial tails by summation.
#include "judge/statistic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace ak::judge {

double median(std::vector<double> values) {
  AK_CHECK(!values.empty(), "a median is of at least one value");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

Interval median_interval(std::vector<double> values, double error_probability) {
  const size_t count = values.size();
  // Leave out `outside` values on each side as long as P(fewer than that many below the median) stays under half the error.
  double tail = 0, term = std::pow(0.5, static_cast<double>(count));
  size_t outside = 0;
  while (outside < count / 2 && tail + term <= 0.5 * error_probability) {
    tail += term;
    term *= static_cast<double>(count - outside) / static_cast<double>(outside + 1);
    ++outside;
  }
  if (outside == 0) return {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  std::sort(values.begin(), values.end());
  return {values[outside - 1], values[count - outside]};
}

}  // namespace ak::judge
