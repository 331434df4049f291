// The live view of a terminal: what is drawn, as a pure function of what happened, and the drawing.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/progress.h"

namespace ak::report {

/// Collects events and lays them out as lines. Draws nothing itself.
class LiveView {
 public:
  explicit LiveView(std::string title) : title_(std::move(title)) {}

  void phase(const std::string& text, const std::string& detail, std::optional<double> done);
  void tasks(const std::vector<store::TaskState>& tasks, const plan::Progress& progress);
  void chosen(const store::TaskState& task);
  void proposed(const std::string& note, const plan::Progress& progress);
  void judged(const store::TaskState& task, const search::Step& step, const plan::Progress& progress);
  void moved_on(const store::TaskState& task);

  /// `seconds_since_event`: since the last of the calls above, so that the time left runs on.
  std::vector<std::string> lines(size_t width, bool colour, double seconds_since_event, size_t tick) const;

 private:
  struct Row {
    double share_percent = 0, baseline_us = 0, best_us = 0, speedup = 0;
    size_t trials = 0;
    bool left = false;
  };
  struct Past {
    int64_t experiment;
    std::string task, verdict, note;
    double speedup;
  };
  static Row row_of(const store::TaskState& task);
  std::string head(size_t width, const class Paint& paint, double seconds_since_event) const;
  std::string bar(size_t width, const class Paint& paint, double seconds_since_event) const;
  std::string task_line(const std::string& id, const Row& row, size_t width, const class Paint& paint) const;

  std::string title_, phase_, phase_detail_, current_, judging_;
  std::optional<double> phase_done_;
  std::vector<std::string> order_;
  std::map<std::string, Row> rows_;
  std::deque<Past> past_;
  plan::Progress progress_;
};

std::unique_ptr<Progress> make_live_progress(std::FILE* out, const Clock& clock, const std::string& title);

}  // namespace ak::report
