// Written by hand: a few lines, marks and labels need no library.
#include "report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/text.h"

namespace ak::report {
namespace {

constexpr double width = 960, top = 24, bottom = 56, left = 56, right = 24, plot_height = 320, legend_row = 20;
constexpr size_t palette = 8;

/// 1, 2 or 5 times a power of ten, so that `range` takes about `steps` of them.
double nice_step(double range, double steps) {
  const double raw = range / steps, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

class Plot {
 public:
  explicit Plot(const RunView& run) : run_(run) {
    for (const TaskView& task : run.tasks) {
      for (const store::Trial& trial : task.state.trials) {
        experiments_ = std::max(experiments_, static_cast<double>(trial.experiment));
        if (trial.verdict == "kept") highest_ = std::max(highest_, trial.speedup_vs_best);
      }
    }
    step_ = nice_step(highest_, 5);
    highest_ = std::ceil(highest_ * 1.05 / step_) * step_;
    height_ = top + plot_height + bottom + legend_row * static_cast<double>(legend_line(run.tasks.size() + 1));
  }

  double height() const { return height_; }

  std::string body() const {
    std::string text = axes();
    for (size_t i = 0; i < run_.tasks.size(); ++i) text += series(i);
    for (size_t i = 0; i < run_.tasks.size(); ++i) text += legend(i);
    return text;
  }

 private:
  static size_t legend_line(size_t task) { return task / 2; }
  double x(double experiment) const { return left + (width - left - right) * experiment / std::max(1.0, experiments_); }
  double y(double speedup) const { return top + plot_height * (1 - std::clamp(speedup, 0.0, highest_) / highest_); }

  std::string axes() const {
    std::string text;
    for (double value = 0; value <= highest_ + step_ / 2; value += step_) {
      text += fmt::format("<line class=\"ak-grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", left, y(value),
                          width - right, y(value));
      text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.{}f}x</text>\n", left - 8, y(value) + 4, value,
                          step_ < 0.1 ? 2 : 1);
    }
    text +=
        fmt::format("<line class=\"ak-one\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", left, y(1), width - right, y(1));
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">best baseline</text>\n", width - right, y(1) - 5);
    const double step = std::max(1.0, nice_step(std::max(1.0, experiments_), 8));
    for (double value = 0; value <= experiments_; value += step) {
      text +=
          fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.0f}</text>\n", x(value), top + plot_height + 20, value);
    }
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">experiment</text>\n", (left + width - right) / 2,
                        top + plot_height + 38);
    return text;
  }

  std::string series(size_t task) const {
    std::string path, marks;
    for (const store::Trial& trial : run_.tasks[task].state.trials) {
      const double at = x(static_cast<double>(trial.experiment));
      marks += mark(trial, at);
      if (trial.verdict == "kept" && trial.speedup_vs_best > 0)
        path += fmt::format("{}{:.1f} V{:.1f} ", path.empty() ? start(at, trial) : "H", at, y(trial.speedup_vs_best));
    }
    if (!path.empty()) path = fmt::format("<path d=\"{}H{:.1f}\"/>\n", path, x(experiments_));
    return fmt::format("<g class=\"ak-series {}\">{}{}</g>\n", colour_class(task), path, marks);
  }

  std::string start(double at, const store::Trial& trial) const { return fmt::format("M{:.1f} {:.1f} H", at, y(trial.speedup_vs_best)); }

  std::string mark(const store::Trial& trial, double at) const {
    const std::string title = fmt::format("<title>{} {}: {}, {} {}</title>", trial.experiment, escape(trial.task), escape(trial.note),
                                          escape(trial.verdict), factor_text(trial.speedup_vs_best));
    if (trial.verdict == "kept")
      return fmt::format("<circle class=\"ak-kept\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\">{}</circle>\n", at, y(trial.speedup_vs_best),
                         title);
    if (trial.verdict == "slower")
      return fmt::format("<circle class=\"ak-slower\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\">{}</circle>\n", at, y(trial.speedup_vs_best),
                         title);
    const double base = top + plot_height - 6;
    return fmt::format("<path class=\"ak-failed\" d=\"M{:.1f} {:.1f} l6 6 m0 -6 l-6 6\">{}</path>\n", at - 3, base - 3, title);
  }

  std::string legend(size_t task) const {
    const double at_x = left + (task % 2 == 0 ? 0 : (width - left - right) / 2),
                 at_y = top + plot_height + bottom + 6 + legend_row * static_cast<double>(legend_line(task));
    const TaskView& view = run_.tasks[task];
    return fmt::format(
        "<g class=\"ak-series {}\"><circle class=\"ak-kept\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"/></g><text x=\"{:.1f}\" y=\"{:.1f}\">{} "
        "{}</text>\n",
        colour_class(task), at_x + 5, at_y - 4, at_x + 18, at_y, escape(view.state.id), factor_text(view.speedup()));
  }

  const RunView& run_;
  double experiments_ = 0, highest_ = 1.25, step_ = 0.25, height_ = 0;
};

}  // namespace

std::string colour_class(size_t task) { return fmt::format("ak-c{}", task % palette); }

std::string plot_style() {
  return R"(.ak-plot{--ink:#4a5160;--line:#e3e6ec;--c0:#2563eb;--c1:#d9480f;--c2:#0f8a5f;--c3:#9333ea;--c4:#b7791f;--c5:#0e7490;--c6:#be185d;--c7:#57534e}
@media (prefers-color-scheme:dark){.ak-plot{--ink:#aab3c2;--line:#2b313c;--c0:#6ea8fe;--c1:#ff9d6c;--c2:#4cd6a0;--c3:#c79bff;--c4:#f0c060;--c5:#55cfe6;--c6:#ff85b8;--c7:#c9c2bb}}
.ak-c0{--c:var(--c0)}.ak-c1{--c:var(--c1)}.ak-c2{--c:var(--c2)}.ak-c3{--c:var(--c3)}.ak-c4{--c:var(--c4)}.ak-c5{--c:var(--c5)}.ak-c6{--c:var(--c6)}.ak-c7{--c:var(--c7)}
svg.ak-plot{font:12px system-ui,sans-serif}svg.ak-plot text{fill:var(--ink)}.ak-grid{stroke:var(--line)}.ak-one{stroke:var(--ink);stroke-dasharray:5 4}
.ak-series path{fill:none;stroke:var(--c);stroke-width:2}.ak-series .ak-kept{fill:var(--c)}.ak-series .ak-slower{fill:none;stroke:var(--c);opacity:.55}.ak-series .ak-failed{stroke-width:1.4;opacity:.6}
)";
}

std::string progress_svg(const RunView& run, bool embedded) {
  const Plot plot(run);
  const std::string head = embedded ? "" : fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
  const std::string style = embedded ? ""
                                     : fmt::format(
                                           "<style>{}@media (prefers-color-scheme:dark){{.ak-ground{{fill:#14171d}}}}</style>\n<rect "
                                           "class=\"ak-ground\" fill=\"#fff\" width=\"100%\" height=\"100%\"/>\n",
                                           plot_style());
  return fmt::format(
      "{}<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ak-plot\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"Best speed-up "
      "of each task over the experiments\">\n{}{}</svg>\n",
      head, width, plot.height(), style, plot.body());
}

}  // namespace ak::report
