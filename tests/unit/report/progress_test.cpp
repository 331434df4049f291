// Progress: the live view's lines, the plain lines, and JSON lines that a program can read.
#include "report/progress.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "report/live.h"
#include "report/text.h"
#include "unit/search/fake_judge.h"

namespace ak::report {
namespace {

using search::testing::FakeClock;

store::TaskState task(const std::string& id, double share) {
  store::TaskState state;
  state.id = id;
  state.share_percent = share;
  state.baseline = store::Baseline{{{"eager", 40}}, "eager", 40, 40, 10};
  return state;
}

search::Step step(store::TaskState& state, int64_t experiment, judge::Verdict verdict, double us, const std::string& note) {
  search::Step result;
  result.proposal.note = note;
  result.judgement.verdict = verdict;
  if (verdict == judge::Verdict::failed_environment) {
    result.judgement.evidence["message"] = "the disk is full";
    return result;
  }
  store::Trial trial;
  trial.experiment = experiment;
  trial.task = state.id;
  trial.verdict = judge::name_of(verdict);
  trial.median_us = us;
  trial.speedup_vs_best = us > 0 ? 40 / us : 0;
  trial.compile_seconds = experiment == 7 ? 1.25 : 0;
  state.trials.push_back(trial);
  if (verdict == judge::Verdict::kept) state.incumbent = trial;
  result.trial = trial;
  return result;
}

plan::Progress at(int64_t experiment, double left) { return {experiment, 40, 60.0, left, 1.18}; }

/// Plays a short run into `progress`.
void play(Progress& progress) {
  store::TaskState softmax = task("softmax_12345678", 31.5), norm = task("rmsnorm_12345678", 12);
  progress.phase("capture the model's graph");
  progress.phase_progress("measure the baselines", 1, 2);
  progress.note("the model uses \"dropout\"");
  progress.started({norm, softmax}, at(0, 120));
  progress.task_chosen(softmax, "31.5 % of the forward");
  progress.proposed(softmax, {{{"ROWS", 1}}, "playbook", "the defaults", std::nullopt}, at(0, 120));
  const auto first = step(softmax, 7, judge::Verdict::kept, 25, "the defaults");
  progress.judged(softmax, first, at(1, 110));
  const auto second = step(softmax, 8, judge::Verdict::wrong, 0, "ROWS 1→2 (tier 1)");
  progress.judged(softmax, second, at(2, 100));
  const auto third = step(softmax, 0, judge::Verdict::failed_environment, 0, "ROWS 1→4 (tier 1)");
  progress.judged(softmax, third, at(2, 95));
  softmax.moved_on = "plateau: 12 trials without a keep";
  progress.moved_on(softmax, {plan::Reason::plateau, *softmax.moved_on});
  progress.finished("the minutes are over", at(2, 0));
}

class File {
 public:
  File() : file_(std::tmpfile()) {}
  ~File() { std::fclose(file_); }
  std::FILE* get() { return file_; }
  std::string text() {
    std::fflush(file_);
    std::rewind(file_);
    std::string text;
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
    return text;
  }

 private:
  std::FILE* file_;
};

TEST(Plain, SaysEachThingInALine) {
  File file;
  FakeClock clock;
  play(*make_progress(Style::plain, file.get(), clock, "tiny"));
  const std::string text = file.text();
  for (const char* part :
       {"capture the model's graph …", "task softmax_12345678: 31.5 % of the forward",
        "✓ 1 of 40 softmax_12345678: kept 25.0 us, 1.60x vs the best baseline (the defaults), compiled in 1.2 s, 1:50 left",
        "✗ 2 of 40 softmax_12345678: wrong (ROWS 1→2 (tier 1)), 1:40 left",
        "the environment failed on softmax_12345678 twice: the disk is full", "left softmax_12345678: plateau",
        "search ended: the minutes are over; 2 experiments in 1:00"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  }
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(JsonLines, EveryLineIsAnObjectWithAnEvent) {
  File file;
  FakeClock clock;
  play(*make_progress(Style::json, file.get(), clock, "tiny"));
  std::istringstream lines(file.text());
  std::vector<Json> events;
  for (std::string line; std::getline(lines, line);) events.push_back(Json::parse(line));
  std::vector<std::string> names;
  for (const Json& event : events) names.push_back(event.at("event"));
  EXPECT_EQ(names, (std::vector<std::string>{"phase", "phase_progress", "note", "search_started", "task", "proposed", "trial", "trial",
                                             "trial", "moved_on", "search_finished"}));
  EXPECT_EQ(events[6].at("verdict"), "kept");
  EXPECT_EQ(events[6].at("experiment"), 7);
  EXPECT_EQ(events[6].at("seconds_left"), 110);
  EXPECT_EQ(events[8].at("evidence").at("message"), "the disk is full");
  EXPECT_EQ(events[9].at("reason"), "plateau");
}

TEST(LiveView, ShowsTasksTheCurrentExperimentAndTheLastVerdicts) {
  LiveView view("autokernel  tiny.py:Tiny");
  store::TaskState softmax = task("softmax_12345678", 31.5), norm = task("rmsnorm_12345678", 12);
  view.tasks({norm, softmax}, at(0, 120));
  view.chosen(softmax);
  for (int i = 0; i < 8; ++i) {
    const auto judged = step(softmax, i + 1, i == 0 ? judge::Verdict::kept : judge::Verdict::slower, 25 + i, "ROWS 1→" + std::to_string(i));
    view.judged(softmax, judged, at(i + 1, 100));
  }
  view.proposed("VEC 4→8 (tier 2)", at(8, 100));
  const auto lines = view.lines(90, false, 1.2, 0);
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  for (const char* part : {"tiny.py:Tiny", "1:39 left", "experiment 8 of 40", "model about 1.18x", "▸ softmax_12345678", "31.5 %", "1.60x",
                           "40.0 us", "25.0 us", "8 tried", "VEC 4→8 (tier 2)", "slower", "ROWS 1→7"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  }
  EXPECT_LT(text.find("softmax_12345678"), text.find("rmsnorm_12345678"));
  EXPECT_EQ(text.find("ROWS 1→1"), std::string::npos);  // only the last few verdicts stay
}

TEST(LiveView, NeverIsWiderThanTheTerminal) {
  LiveView view("a title that is quite a bit longer than the narrow terminals it may be shown on");
  store::TaskState softmax = task("flash_attention_with_a_long_name_12345678", 31.5);
  view.tasks({softmax}, at(0, 120));
  view.chosen(softmax);
  const auto judged = step(softmax, 1, judge::Verdict::nondeterministic, 0, std::string(300, 'x'));
  view.judged(softmax, judged, at(1, 100));
  view.phase("measure the baselines", "eager", 0.5);
  for (const size_t width : {10u, 40u, 41u, 57u, 80u, 133u}) {
    for (const bool colour : {false, true}) {
      for (const std::string& line : view.lines(width, colour, 0, 3)) EXPECT_LT(columns(line), std::max<size_t>(width, 40)) << line;
    }
  }
}

TEST(Live, LeavesOnlyNotesBehind) {
  File file;
  FakeClock clock;
  {
    const auto progress = make_progress(Style::live, file.get(), clock, "tiny");
    play(*progress);
  }
  const std::string text = file.text();
  EXPECT_NE(text.find("the model uses \"dropout\""), std::string::npos);
  EXPECT_NE(text.find("search ended: the minutes are over"), std::string::npos);
  const size_t last_clear = text.rfind("\x1b[J");
  if (last_clear != std::string::npos) {
    EXPECT_EQ(text.substr(last_clear).find("experiment 2"), std::string::npos);
  }
}

TEST(StyleFor, IsPlainWhereTheOutputIsNoTerminal) {
  File file;
  EXPECT_EQ(style_for(file.get(), false), Style::plain);
  EXPECT_EQ(style_for(file.get(), true), Style::json);
  EXPECT_FALSE(colour_for(file.get()));
  EXPECT_EQ(width_of(file.get()), 100u);
}

}  // namespace
}  // namespace ak::report
