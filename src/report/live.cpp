// A block of lines at the bottom of the terminal that is drawn over itself, at most ten times a second.
#include "report/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "report/text.h"

namespace ak::report {
namespace {

constexpr size_t past_lines = 5, task_lines = 10, narrowest = 40;
constexpr auto redraw_period = std::chrono::milliseconds(100);
constexpr size_t idle_periods = 5;  // without an event it is drawn twice a second, for the time left
const char* const spinner[] = {"⠋", "⠙", "⠸", "⠴", "⠦", "⠇"};

}  // namespace

void LiveView::phase(const std::string& text, const std::string& detail, std::optional<double> done) {
  phase_ = text;
  phase_detail_ = detail;
  phase_done_ = done;
}

LiveView::Row LiveView::row_of(const store::TaskState& task) {
  Row row;
  row.share_percent = task.share_percent;
  row.trials = task.trials.size();
  row.left = task.moved_on.has_value();
  if (task.baseline) row.baseline_us = task.baseline->best_us;
  if (task.incumbent) row.best_us = task.incumbent->median_us;
  if (row.best_us > 0) row.speedup = row.baseline_us / row.best_us;
  return row;
}

void LiveView::tasks(const std::vector<store::TaskState>& tasks, const plan::Progress& progress) {
  phase_.clear();
  order_.clear();
  for (const store::TaskState& task : tasks) {
    order_.push_back(task.id);
    rows_[task.id] = row_of(task);
  }
  std::stable_sort(order_.begin(), order_.end(),
                   [&](const auto& left, const auto& right) { return rows_[left].share_percent > rows_[right].share_percent; });
  progress_ = progress;
}

void LiveView::chosen(const store::TaskState& task) {
  current_ = task.id;
  rows_[task.id] = row_of(task);
}

void LiveView::proposed(const std::string& note, const plan::Progress& progress) {
  judging_ = note;
  progress_ = progress;
}

void LiveView::judged(const store::TaskState& task, const search::Step& step, const plan::Progress& progress) {
  rows_[task.id] = row_of(task);
  judging_.clear();
  progress_ = progress;
  past_.push_front({step.trial ? step.trial->experiment : 0, task.id, std::string(judge::name_of(step.judgement.verdict)),
                    step.proposal.note, step.trial ? step.trial->speedup_vs_best : 0});
  if (past_.size() > past_lines) past_.pop_back();
}

void LiveView::moved_on(const store::TaskState& task) {
  rows_[task.id] = row_of(task);
  current_.clear();
}

std::string LiveView::head(size_t width, const Paint& paint, double seconds_since_event) const {
  std::string right;
  if (progress_.seconds_left) right = duration_text(std::max(0.0, *progress_.seconds_left - seconds_since_event)) + " left";
  if (!progress_.seconds_left && !order_.empty()) right = duration_text(progress_.seconds_elapsed + seconds_since_event);
  const size_t left = width > columns(right) + 2 ? width - columns(right) - 2 : 0;
  return paint.strong(fit(title_, left)) + "  " + right;
}

/// Done so far, by experiments or by time, whichever is farther.
std::string LiveView::bar(size_t width, const Paint& paint, double seconds_since_event) const {
  double done = 0;
  if (progress_.experiments_planned && *progress_.experiments_planned > 0) {
    done = static_cast<double>(progress_.experiment) / static_cast<double>(*progress_.experiments_planned);
  }
  const double elapsed = progress_.seconds_elapsed + seconds_since_event;
  if (progress_.seconds_left && elapsed > 0) done = std::max(done, elapsed / (progress_.seconds_elapsed + *progress_.seconds_left));
  const std::string counter = progress_.experiments_planned
                                  ? fmt::format("experiment {} of {}", progress_.experiment, *progress_.experiments_planned)
                                  : fmt::format("{} experiments", progress_.experiment);
  const std::string text = fmt::format("  {}, model about {}", counter, factor_text(progress_.estimated_speedup));
  const size_t cells = width > columns(text) + 10 ? std::min<size_t>(30, width - columns(text)) : 10;
  const auto full = static_cast<size_t>(std::lround(std::clamp(done, 0.0, 1.0) * static_cast<double>(cells)));
  std::string filled, empty;
  for (size_t i = 0; i < cells; ++i) (i < full ? filled : empty) += i < full ? "━" : "─";
  return paint.accent(filled) + paint.dim(empty) + text;
}

std::string LiveView::task_line(const std::string& id, const Row& row, size_t width, const Paint& paint) const {
  const std::string name = fit(id, std::min<size_t>(32, width / 3));
  const std::string factor = fit_right(factor_text(row.speedup), 7);
  const std::string text =
      fmt::format("{} {} {:5.1f} %  {}  {} → {}  {} tried{}", id == current_ ? "▸" : " ", id == current_ ? paint.strong(name) : name,
                  row.share_percent, row.speedup > 1 ? paint.good(factor) : paint.dim(factor), fit_right(time_text(row.baseline_us), 9),
                  fit_right(time_text(row.best_us), 9), row.trials, row.left ? paint.dim(", left") : "");
  return text;
}

std::vector<std::string> LiveView::lines(size_t width, bool colour, double seconds_since_event, size_t tick) const {
  width = std::max(width, narrowest) - 1;  // a full last column makes some terminals wrap
  const Paint paint(colour);
  const std::string turning = paint.accent(spinner[tick % std::size(spinner)]);
  std::vector<std::string> result = {head(width, paint, seconds_since_event)};
  if (!phase_.empty()) {
    const std::string share = phase_done_ ? fmt::format(" {:.0f} %", 100 * *phase_done_) : "";
    result.push_back(fmt::format("{} {}{} {}", turning, phase_, share, paint.dim(phase_detail_)));
  }
  if (!order_.empty()) {
    result.push_back(bar(width, paint, seconds_since_event));
    for (size_t i = 0; i < std::min(order_.size(), task_lines); ++i)
      result.push_back(task_line(order_[i], rows_.at(order_[i]), width, paint));
    if (order_.size() > task_lines) result.push_back(paint.dim(fmt::format("  and {} more", order_.size() - task_lines)));
    result.push_back(judging_.empty() ? "" : fmt::format("{} {}", turning, judging_));
    for (const Past& past : past_) {
      result.push_back(fmt::format("{} {} {} {} {}", paint.verdict(past.verdict, mark_of(past.verdict)),
                                   fit_right(fmt::format("{}", past.experiment), 4), paint.verdict(past.verdict, fit(past.verdict, 16)),
                                   fit_right(factor_text(past.speedup), 7), past.note));
    }
  }
  for (std::string& line : result) line = cut(line, width);
  return result;
}

namespace {

class Live final : public Progress {
 public:
  Live(std::FILE* out, const Clock& clock, const std::string& title)
      : out_(out),
        clock_(clock),
        colour_(colour_for(out)),
        view_(title),
        event_ns_(clock.now_ns()),
        drawer_([this](const std::stop_token& stop) { draw_on(stop); }) {}
  ~Live() override {
    drawer_.request_stop();
    changed_.notify_all();
    drawer_.join();
    print(over_last_block());
  }

  void phase(const std::string& text) override {
    tell([&] { view_.phase(text, "", std::nullopt); });
  }
  void phase_progress(const std::string& text, int64_t done, int64_t total) override {
    tell([&] { view_.phase(text, "", total > 0 ? std::optional(static_cast<double>(done) / static_cast<double>(total)) : std::nullopt); });
  }
  void note(const std::string& text) override {
    tell([&] { notes_ += text + "\n"; });
  }
  void started(const std::vector<store::TaskState>& tasks, const plan::Progress& progress) override {
    tell([&] { view_.tasks(tasks, progress); });
  }
  void task_chosen(const store::TaskState& task, const std::string&) override {
    tell([&] { view_.chosen(task); });
  }
  void proposed(const store::TaskState&, const search::Proposal& proposal, const plan::Progress& progress) override {
    tell([&] { view_.proposed(proposal.note, progress); });
  }
  void judged(const store::TaskState& task, const search::Step& step, const plan::Progress& progress) override {
    if (const std::string text = strangers_text(step.judgement.evidence); !text.empty() && !std::exchange(told_of_strangers_, true))
      note(text);
    tell([&] { view_.judged(task, step, progress); });
  }
  void moved_on(const store::TaskState& task, const plan::MoveOn& why) override {
    tell([&] {
      view_.moved_on(task);
      notes_ += fmt::format("left {}: {}\n", task.id, why.text);
    });
  }
  void finished(const std::string& why, const plan::Progress& progress) override {
    note(fmt::format("search ended: {}; {} experiments in {}", why, progress.experiment, duration_text(progress.seconds_elapsed)));
  }

 private:
  template <typename Change>
  void tell(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    event_ns_ = clock_.now_ns();
    fresh_ = true;
  }

  void draw_on(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (size_t period = 0; !stop.stop_requested(); ++period) {
      if (fresh_ || period % idle_periods == 0) draw(period / idle_periods);
      fresh_ = false;
      changed_.wait_for(lock, stop, redraw_period, [] { return false; });
    }
    print(over_last_block() + std::exchange(notes_, ""));
    drawn_ = 0;
  }

  void draw(size_t tick) {
    std::string text = over_last_block() + std::exchange(notes_, "");
    const auto lines = view_.lines(width_of(out_), colour_, clock_.seconds_since(event_ns_), tick);
    for (const std::string& line : lines) text += line + "\n";
    drawn_ = lines.size();
    print(text);
  }

  std::string over_last_block() const { return drawn_ > 0 ? fmt::format("\x1b[{}A\r\x1b[J", drawn_) : ""; }

  void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), out_);
    std::fflush(out_);
  }

  std::FILE* out_;
  const Clock& clock_;
  bool colour_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  LiveView view_;
  std::string notes_;
  int64_t event_ns_;
  size_t drawn_ = 0;
  bool fresh_ = true, told_of_strangers_ = false;
  std::jthread drawer_;
};

}  // namespace

std::unique_ptr<Progress> make_live_progress(std::FILE* out, const Clock& clock, const std::string& title) {
  return std::make_unique<Live>(out, clock, title);
}

}  // namespace ak::report
