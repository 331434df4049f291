// Plain lines and JSON lines; the live view is in live.cpp.
#include "report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "report/live.h"
#include "report/text.h"

namespace ak::report {
namespace {

constexpr double shortest_compile_s = 0.05;  // below it is not told
constexpr size_t default_width = 100;

std::string counter(const plan::Progress& progress) {
  return progress.experiments_planned ? fmt::format("{} of {}", progress.experiment, *progress.experiments_planned)
                                      : fmt::format("{}", progress.experiment);
}

/// What the judge waited for the compiler, where it did: a module of the cache, or one compiled ahead, costs nothing.
std::string compile_text(double seconds) { return seconds < shortest_compile_s ? "" : fmt::format(", compiled in {:.1f} s", seconds); }

/// The time of what was right; where what was not failed.
std::string outcome(const store::Trial& trial, const Json& evidence) {
  if (trial.median_us > 0)
    return fmt::format(" {}, {} vs the best baseline", time_text(trial.median_us), factor_text(trial.speedup_vs_best));
  return evidence.contains("stage") ? fmt::format(" in stage {}", evidence.at("stage").dump()) : "";
}

class Plain final : public Progress {
 public:
  explicit Plain(std::FILE* out) : out_(out) {}

  void phase(const std::string& text) override { line(text + " …"); }
  void note(const std::string& text) override { line(text); }

  void started(const std::vector<store::TaskState>& tasks, const plan::Progress&) override {
    line(fmt::format("search over {} tasks", tasks.size()));
    for (const store::TaskState& task : tasks) {
      const std::string share = task.share_percent > 0 ? fmt::format("{:5.1f} % of the forward, ", task.share_percent) : "";
      line(fmt::format("  {:<32} {}baseline {}", task.id, share, time_text(task.baseline ? task.baseline->best_us : 0)));
    }
  }
  void task_chosen(const store::TaskState& task, const std::string& why) override { line(fmt::format("task {}: {}", task.id, why)); }

  void judged(const store::TaskState& task, const search::Step& step, const plan::Progress& progress) override {
    const std::string verdict(judge::name_of(step.judgement.verdict));
    if (const std::string text = strangers_text(step.judgement.evidence); !text.empty() && !std::exchange(told_of_strangers_, true))
      note(text);
    if (!step.trial)
      return line(
          fmt::format("the environment failed on {} twice: {}", task.id, step.judgement.evidence.value("message", "no reason given")));
    const std::string left = progress.seconds_left ? fmt::format(", {} left", duration_text(*progress.seconds_left)) : "";
    line(fmt::format("{} {} {}: {}{} ({}){}{}", mark_of(verdict), counter(progress), task.id, verdict,
                     outcome(*step.trial, step.judgement.evidence), step.proposal.note, compile_text(step.trial->compile_seconds), left));
  }
  void moved_on(const store::TaskState& task, const plan::MoveOn& why) override { line(fmt::format("left {}: {}", task.id, why.text)); }
  void finished(const std::string& why, const plan::Progress& progress) override {
    const std::string model =
        progress.estimated_speedup > 1 ? fmt::format(", estimated {} for the model", factor_text(progress.estimated_speedup)) : "";
    line(fmt::format("search ended: {}; {} experiments in {}{}", why, progress.experiment, duration_text(progress.seconds_elapsed), model));
  }

 private:
  void line(const std::string& text) {
    fmt::print(out_, "{}\n", text);
    std::fflush(out_);
  }
  std::FILE* out_;
  bool told_of_strangers_ = false;
};

class JsonLines final : public Progress {
 public:
  explicit JsonLines(std::FILE* out) : out_(out) {}

  void phase(const std::string& text) override { event({{"event", "phase"}, {"text", text}}); }
  void phase_progress(const std::string& text, int64_t done, int64_t total) override {
    event({{"event", "phase_progress"}, {"text", text}, {"done", done}, {"total", total}});
  }
  void note(const std::string& text) override { event({{"event", "note"}, {"text", text}}); }

  void started(const std::vector<store::TaskState>& tasks, const plan::Progress& progress) override {
    Json list = Json::array();
    for (const store::TaskState& task : tasks)
      list.push_back(
          {{"task", task.id}, {"share_percent", task.share_percent}, {"baseline_us", task.baseline ? task.baseline->best_us : 0}});
    event({{"event", "search_started"}, {"tasks", list}}, &progress);
  }
  void task_chosen(const store::TaskState& task, const std::string& why) override {
    event({{"event", "task"}, {"task", task.id}, {"why", why}});
  }
  void proposed(const store::TaskState& task, const search::Proposal& proposal, const plan::Progress& progress) override {
    event({{"event", "proposed"}, {"task", task.id}, {"proposer", proposal.proposer}, {"note", proposal.note}, {"point", proposal.point}},
          &progress);
  }
  void judged(const store::TaskState& task, const search::Step& step, const plan::Progress& progress) override {
    Json json = {{"event", "trial"},
                 {"task", task.id},
                 {"verdict", judge::name_of(step.judgement.verdict)},
                 {"note", step.proposal.note},
                 {"point", step.proposal.point}};
    if (step.trial) {
      json["experiment"] = step.trial->experiment;
      json["median_us"] = step.trial->median_us;
      json["speedup_vs_best"] = step.trial->speedup_vs_best;
      json["speedup_vs_eager"] = step.trial->speedup_vs_eager;
    } else {
      json["evidence"] = step.judgement.evidence;
    }
    event(std::move(json), &progress);
  }
  void moved_on(const store::TaskState& task, const plan::MoveOn& why) override {
    event({{"event", "moved_on"}, {"task", task.id}, {"reason", plan::name_of(why.reason)}, {"text", why.text}});
  }
  void finished(const std::string& why, const plan::Progress& progress) override {
    event({{"event", "search_finished"}, {"why", why}}, &progress);
  }

 private:
  void event(Json json, const plan::Progress* progress = nullptr) {
    if (progress) {
      json["session_experiment"] = progress->experiment;
      json["seconds_elapsed"] = progress->seconds_elapsed;
      json["seconds_left"] = progress->seconds_left ? Json(*progress->seconds_left) : Json(nullptr);
      json["estimated_speedup"] = progress->estimated_speedup;
    }
    fmt::print(out_, "{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
    std::fflush(out_);
  }
  std::FILE* out_;
};

}  // namespace

Style style_for(std::FILE* out, bool json) {
  if (json) return Style::json;
  const char* const terminal = std::getenv("TERM");
  const bool dumb = terminal && std::string_view(terminal) == "dumb";
  return ::isatty(::fileno(out)) && !dumb ? Style::live : Style::plain;
}

bool colour_for(std::FILE* out) {
  const char* const no_colour = std::getenv("NO_COLOR");
  return ::isatty(::fileno(out)) && !(no_colour && *no_colour);
}

size_t width_of(std::FILE* out) {
  winsize size{};
  return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : default_width;
}

std::unique_ptr<Progress> make_progress(Style style, std::FILE* out, const Clock& clock, const std::string& title) {
  if (style == Style::json) return std::make_unique<JsonLines>(out);
  if (style == Style::plain) return std::make_unique<Plain>(out);
  return make_live_progress(out, clock, title);
}

}  // namespace ak::report
