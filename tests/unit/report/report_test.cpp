// Reports are pure functions of a run's state: the numbers are there, the text is escaped, the markup is whole.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>

#include "report/html.h"
#include "report/plot.h"
#include "report/summary.h"
#include "report/text.h"
#include "unit/search/fake_judge.h"

namespace ak::report {
namespace {

store::Trial trial(int64_t experiment, const std::string& verdict, double us, const std::string& note) {
  store::Trial trial;
  trial.experiment = experiment;
  trial.task = "softmax_1";
  trial.verdict = verdict;
  trial.median_us = us;
  trial.note = note;
  trial.point = {{"ROWS", experiment}};
  trial.speedup_vs_best = us > 0 ? 40 / us : 0;
  return trial;
}

TaskView task(const std::string& id, double share, const std::vector<store::Trial>& trials) {
  TaskView view{search::testing::small_task(), {}};
  view.task.id = id;
  view.state.id = id;
  view.state.family = id.substr(0, id.find('_'));
  view.state.share_percent = share;
  view.state.baseline = store::Baseline{{{"eager", 60}, {"compile", 40}}, "compile", 40, 60, 10};
  view.state.trials = trials;
  for (const store::Trial& each : trials) {
    if (each.verdict == "kept") view.state.incumbent = each;
  }
  return view;
}

RunView run() {
  RunView view{"runs/<tiny> & \"co\"", {.model = "models/<b>tiny</b>.py:Tiny", .input_shape = {1, 16}}, {}, nullptr};
  view.tasks.push_back(task("softmax_1", 42.5,
                            {trial(1, "kept", 50, "the defaults"), trial(2, "wrong", 0, "a < b && c > \"d\""),
                             trial(3, "kept", 25, "ROWS 1→2 (tier 1)"), trial(5, "slower", 30, "UNROLL 1→2 (tier 3)")}));
  view.tasks.push_back(task("matmul_2", 30, {trial(4, "kept", 80, "the defaults")}));
  view.tasks.push_back(task("rope_3", 2, {}));
  view.verification = {{"vs",
                        {{"torch.compile", {{"speedup", 1.07}, {"ci_low", 1.03}, {"ci_high", 1.11}}},
                         {"eager", {{"speedup", 1.314}, {"ci_low", 1.29}, {"ci_high", 1.34}}},
                         {"replacement_off", {{"speedup", 1.08}, {"ci_low", 1.05}, {"ci_high", 1.10}}},
                         {"aot", {{"error", "out of memory"}}}}},
                       {"max_error_over_eager_error", 1.42},
                       {"norm_error_over_eager_error", 0.97},
                       {"replaced", {{{"task", "softmax_1"}, {"calls", 12}}}}};
  return view;
}

/// Whether tags are closed in order, attributes quoted, and every & begins an entity. Returns what is wrong, or nothing.
std::string markup_fault(const std::string& text) {
  static const std::regex tag(R"re(<(/?)([A-Za-z][A-Za-z0-9]*)((?:\s+[A-Za-z0-9-]+="[^"<>]*")*)\s*(/?)>)re");
  std::vector<std::string> open;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '&' &&
        !std::regex_search(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), std::regex(R"(^&(amp|lt|gt|quot|#39);)")))
      return "a bare & at " + text.substr(at, 20);
    if (text[at] != '<') {
      ++at;
      continue;
    }
    if (text.compare(at, 2, "<!") == 0 || text.compare(at, 2, "<?") == 0) {
      at = text.find('>', at);
      continue;
    }
    std::smatch match;
    const std::string rest = text.substr(at, 600);
    if (!std::regex_search(rest, match, tag, std::regex_constants::match_continuous)) return "no tag: " + rest.substr(0, 60);
    at += static_cast<size_t>(match.length());
    const std::string name = match[2];
    if (match[1] == "/") {
      if (open.empty() || open.back() != name) return "</" + name + "> closes " + (open.empty() ? "nothing" : open.back());
      open.pop_back();
    } else if (match[4] != "/") {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is left open";
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(MarkupFault, FindsFaults) {
  EXPECT_EQ(markup_fault("<p class=\"a\">x &amp; y<br/></p>"), "");
  EXPECT_NE(markup_fault("<p>x & y</p>"), "");
  EXPECT_NE(markup_fault("<p><b>x</p></b>"), "");
  EXPECT_NE(markup_fault("<p>a < b</p>"), "");
  EXPECT_NE(markup_fault("<p>"), "");
}

TEST(Html, IsWholeSelfContainedAndEscaped) {
  const std::string html = html_report(run());
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_EQ(html.find("<b>tiny"), std::string::npos);
  EXPECT_NE(html.find("&lt;b&gt;tiny&lt;/b&gt;"), std::string::npos);
  EXPECT_NE(html.find("a &lt; b &amp;&amp; c &gt; &quot;d&quot;"), std::string::npos);
  for (const char* outside : {"src=", "href=", "url(", "<script", "@import"}) EXPECT_EQ(html.find(outside), std::string::npos) << outside;
}

TEST(Html, HasTheNumbers) {
  const std::string html = html_report(run());
  for (const char* number : {"softmax_1", "42.5 %", "40.0 us", "25.0 us", "1.60x", "0.50x", "1.314x", "1.290 to 1.340", "1.050 to 1.100",
                             "1.42 times", "0.97 times", "1 of 3", "M=100 N=96 ×3", "the baseline is kept", "ROWS 1→2 (tier 1)"}) {
    EXPECT_NE(html.find(number), std::string::npos) << number;
  }
  // Amdahl: 42.5 % of the eager forward at 25 of 60 us.
  EXPECT_NE(html.find("42.5 % → 17.7 %"), std::string::npos);
}

TEST(Html, SaysWhatToDoWhereNothingIsVerified) {
  RunView view = run();
  view.verification = nullptr;
  const std::string html = html_report(view);
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_NE(html.find("autokernel verify --run-dir"), std::string::npos);
  view.tasks.clear();
  EXPECT_EQ(markup_fault(html_report(view)), "");
}

TEST(Plot, HasAMarkForEveryTrialAndALineForEveryTaskThatKeptOne) {
  const std::string svg = progress_svg(run());
  EXPECT_EQ(markup_fault(svg), "");
  EXPECT_EQ(svg.rfind("<?xml", 0), 0u);
  EXPECT_EQ(count(svg, "<title>"), 5u);
  EXPECT_EQ(count(svg, "class=\"ak-slower\""), 1u);
  EXPECT_EQ(count(svg, "class=\"ak-failed\""), 1u);
  EXPECT_EQ(count(svg, "<path d=\"M"), 2u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Plot, TheHigherSpeedupIsDrawnHigher) {
  const std::string svg = progress_svg(run());
  std::vector<double> heights;
  const std::regex kept("class=\"ak-kept\" cx=\"[0-9.]+\" cy=\"([0-9.]+)\" r=\"4.5\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), kept), end; at != end; ++at) heights.push_back(std::stod((*at)[1]));
  ASSERT_EQ(heights.size(), 3u);
  EXPECT_LT(heights[1], heights[0]);  // 1.6x above 0.8x
  EXPECT_GT(heights[2], heights[0]);  // 0.5x below
}

TEST(FinalJson, HasTheAgreedFields) {
  const Json json = final_json(run());
  EXPECT_EQ(json.at("run_dir"), "runs/<tiny> & \"co\"");
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_EQ(json.at("trials"), 5);
  EXPECT_EQ(json.at("kept_trials"), 3);
  EXPECT_EQ(json.at("kept"), 1);
  const Json& first = json.at("tasks").at(0);
  EXPECT_EQ(first.at("task"), "softmax_1");
  EXPECT_EQ(first.at("family"), "softmax");
  EXPECT_EQ(first.at("shapes").at(0).at("dims").at("M"), 100);
  EXPECT_EQ(first.at("share_percent"), 42.5);
  EXPECT_EQ(first.at("speedup_vs_best_baseline"), 1.6);
  EXPECT_EQ(first.at("best_us"), 25);
  EXPECT_EQ(first.at("baseline").at("kind"), "compile");
  EXPECT_EQ(first.at("baseline").at("us"), 40);
  EXPECT_EQ(first.at("verdicts"), (Json{{"kept", 2}, {"slower", 1}, {"wrong", 1}}));
  EXPECT_EQ(json.at("tasks").at(1).at("speedup_vs_best_baseline"), 0.5);
  EXPECT_EQ(json.at("tasks").at(1).at("best_us"), 40);  // the baseline is kept
  const Json& end = json.at("end_to_end");
  EXPECT_EQ(end.at("vs").at("replacement_off").at("ci_low"), 1.05);
  EXPECT_EQ(end.at("max_error_over_eager_error"), 1.42);
  EXPECT_EQ(end.at("replaced").at(0).at("calls"), 12);
}

TEST(FinalJson, UnverifiedIsNull) {
  RunView view = run();
  view.verification = nullptr;
  EXPECT_TRUE(final_json(view).at("end_to_end").is_null());
}

TEST(Summary, ShowsTasksAndTheModelWithinTheWidth) {
  for (const size_t width : {80u, 120u, 200u}) {
    const std::string text = summary_text(run(), width, false);
    for (const char* part : {"softmax_1", "42.5 %", "1.60x", "ours", "baseline", "eager", "1.314x", "1.290 to 1.340", "softmax_1 ×12",
                             "5 experiments, 3 steps forward"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part;
    }
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_LT(text.find("eager"), text.find("torch.compile"));
  }
  EXPECT_NE(summary_text(run(), 100, true).find("\x1b[32m"), std::string::npos);
}

TEST(Summary, SaysWhatWasTakenOutOfTheModelAgain) {
  RunView view = run();
  view.verification["replaced"] = Json::array();
  view.verification["taken_out"] = {{{"task", "softmax_1"}, {"reason", "the model is 1.1 % faster without it"}}};
  const std::string text = summary_text(view, 120, false);
  EXPECT_NE(text.find("replaced: nothing\ntaken out: softmax_1: the model is 1.1 % faster without it\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("ours"), std::string::npos);
  EXPECT_EQ(final_json(view).at("tasks").at(0).at("used"), false);
  EXPECT_EQ(final_json(run()).at("tasks").at(0).at("used"), true);
  EXPECT_NE(html_report(view).find("the model is 1.1 % faster without it"), std::string::npos);
}

TEST(Summary, GoesByTheConfirmationWhereThereIsOne) {
  RunView view = run();
  view.verification = nullptr;
  view.tasks[0].state.confirmation =
      store::Confirmation{.experiment = 3, .kind = "compile", .kernel_us = 751, .baseline_us = 729, .speedup = 0.97};
  for (const std::string& text : {summary_text(view, 120, false), html_report(view)}) {
    for (const char* number : {"729 us", "751 us", "0.97x"}) EXPECT_NE(text.find(number), std::string::npos) << number << "\n" << text;
  }
  const Json task = final_json(view).at("tasks").at(0);
  EXPECT_EQ(task.at("kept"), false);
  EXPECT_EQ(task.at("candidate_us"), 751);
  EXPECT_EQ(task.at("baseline").at("us"), 729);
  EXPECT_EQ(task.at("best_us"), 729);
  view.tasks[0].state.confirmation->speedup = 1.5;
  EXPECT_EQ(final_json(view).at("tasks").at(0).at("kept"), true);
  view.tasks[0].state.refused = 3;
  EXPECT_EQ(final_json(view).at("tasks").at(0).at("kept"), false);
}

TEST(Text, EscapesMarkupAndForbiddenCharacters) {
  EXPECT_EQ(escape("<a href='x'>&\"é→"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;é→");
  EXPECT_EQ(escape(std::string("a\0b\x1b[1m", 7)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD[1m");
  EXPECT_EQ(escape("cut \xE2\x86"), "cut \xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(escape("\xFF\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Text, CutsAndPadsByColumns) {
  EXPECT_EQ(columns("ROWS 1→2"), 8u);
  EXPECT_EQ(columns("\x1b[32mok\x1b[0m"), 2u);
  EXPECT_EQ(fit("1→2", 5), "1→2  ");
  EXPECT_EQ(fit_right("1→2", 5), "  1→2");
  EXPECT_EQ(cut("1→2→3→4", 4), "1→2…");
  EXPECT_EQ(cut("\x1b[32mlonger\x1b[0m", 4), "\x1b[32mlon…\x1b[0m");
  EXPECT_EQ(cut("any", 0), "");
}

TEST(Text, NumbersReadWell) {
  EXPECT_EQ(time_text(0), "–");
  EXPECT_EQ(time_text(12.34), "12.3 us");
  EXPECT_EQ(time_text(123.4), "123 us");
  EXPECT_EQ(time_text(1234), "1.23 ms");
  EXPECT_EQ(time_text(2.1e6), "2.10 s");
  EXPECT_EQ(factor_text(1.424), "1.42x");
  EXPECT_EQ(duration_text(187), "3:07");
  EXPECT_EQ(duration_text(3729), "1:02:09");
}

TEST(Html, SaysWhatTheBestKernelTakesAndWhatBoundsIt) {
  RunView view = run();
  store::Trial& best = *view.tasks[0].state.incumbent;
  best.evidence =
      R"({"bound": "memory", "kernels": [{"kernel": "rows<2>", "registers": 40, "local_bytes": 8, "static_shared_bytes": 1024,
          "dynamic_shared_bytes": 512, "blocks_per_sm": 6, "occupancy": 0.75}]})";
  const std::string html = html_report(view);
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_NE(html.find("bound by memory"), std::string::npos);
  EXPECT_NE(html.find("rows&lt;2&gt;: 40 registers, 8 bytes of local memory a thread, 1536 bytes of shared memory a block, 6 blocks on a "
                      "multiprocessor, occupancy 75 %"),
            std::string::npos);
  EXPECT_EQ(html_report(run()).find("bound by"), std::string::npos);
}

TEST(WriteReport, FollowsTheRun) {
  search::testing::RunFixture fixture;
  store::Run run = fixture.open();
  fixture.add(run, "softmax_12345678", 20, 40, 10);
  fixture.add(run, "rmsnorm_12345678", 60, 80, 20);
  store::Trial kept = trial(0, "kept", 25, "the defaults");
  kept.task = "softmax_12345678";
  run.record(kept, "text");
  write_json(run.directory() / "verification.json", {{"vs", {{"eager", {{"speedup", 1.25}, {"ci_low", 1.2}, {"ci_high", 1.3}}}}}});
  const auto path = write_report(run);
  const std::string html = read_file(path);
  EXPECT_NE(html.find("1.250x"), std::string::npos);
  EXPECT_LT(html.find("rmsnorm_12345678"), html.find("softmax_12345678"));  // by share
  EXPECT_EQ(markup_fault(read_file(run.directory() / "progress.svg")), "");
}

}  // namespace
}  // namespace ak::report
