// Each command is the list of its steps.
#include "cli/commands.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/agent.h"
#include "cli/bench.h"
#include "cli/doctor.h"
#include "cli/engine_socket.h"
#include "cli/export.h"
#include "cli/job.h"
#include "cli/judge_rate.h"
#include "cli/opened.h"
#include "cli/self_test.h"
#include "cli/solution.h"
#include "cli/steps.h"
#include "cli/suite.h"
#include "cli/working_copy.h"
#include "core/error.h"
#include "core/file.h"
#include "report/html.h"
#include "report/summary.h"

namespace ak::cli {
namespace {

void print_json(const Json& json) { fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace)); }

/// Whether the model with its kernels may be used: every replaced region was called, and the error is within bounds. True where there is
/// nothing to verify.
bool holds(const Json& verification) {
  return verification.is_null() || (verification.value("parity", true) && verification.value("engaged", true));
}

/// One verdict, printed. Returns the exit code of `bench`.
Exit print_verdict(const Options& options, const Json& result) {
  if (options.json) {
    print_json(result);
  } else {
    fmt::print("{}", bench_text(result));
  }
  if (!result.contains("experiment")) return Exit::environment;
  return result.at("kept").get<bool>() ? Exit::done : Exit::not_kept;
}

/// The end of `run` and `report`: pages written, the summary printed.
void print_summary(const store::Run& run, bool json) {
  const auto page = report::write_report(run);
  const report::RunView view = report::view_of(run);
  if (json) return print_json(report::final_json(view));
  fmt::print("{}\nreport: {}\n", report::summary_text(view, report::width_of(stdout), report::colour_for(stdout)), page.string());
}

/// A command to type next: on this run, wherever it is.
std::string command_for(const std::string& command, const Options& options) {
  return "autokernel " + command + (options.run_directory.empty() ? "" : " --run-dir " + options.run_directory.string());
}

void print_progress(const Options& options, const Json& json, const std::string& text) {
  if (options.json) return print_json(json);
  fmt::print("{}\n", text);
}

}  // namespace

Exit doctor(Options& options) {
  const auto findings = examine_machine();
  if (options.json) {
    print_json(doctor_json(findings));
  } else {
    fmt::print("{}", doctor_text(findings));
  }
  return healthy(findings) ? Exit::done : Exit::failed;
}

Exit run(Options& options) {
  check_agent(options);
  const auto opened = open_for_request(options);
  Session& session = *opened->session;
  capture_model(session);
  measure_nodes(session);
  extract_tasks(session, options.top, options.min_share_percent);
  search_and_verify(session, options);
  const Json verification = session.has("verification.json") ? read_json(session.file("verification.json")) : Json();
  opened->progress.reset();
  print_summary(session.run(), options.json);
  return stop_requested() ? Exit::interrupted : holds(verification) ? Exit::done : Exit::does_not_hold;
}

Exit prepare(Options& options) {
  const auto opened = open_for_request(options);
  capture_model(*opened->session);
  const auto& run = opened->session->run();
  opened->progress.reset();
  print_progress(options, {{"run_dir", run.directory().string()}},
                 fmt::format("prepared {}\nnext: {}", run.directory().string(), command_for("profile", options)));
  return Exit::done;
}

Exit profile(Options& options) {
  const auto opened = open_existing(options);
  measure_nodes(*opened->session);
  const Json profile = read_json(opened->session->file("profile.json"));
  opened->progress.reset();
  print_progress(options,
                 {{"run_dir", opened->session->run().directory().string()},
                  {"total_us", profile.at("total_us")},
                  {"nodes", profile.at("nodes").size()}},
                 fmt::format("{} nodes, {:.1f} ms a forward\nnext: {}", profile.at("nodes").size(),
                             profile.at("total_us").get<double>() * 1e-3, command_for("extract", options)));
  return Exit::done;
}

Exit extract(Options& options) {
  const auto opened = open_existing(options);
  Session& session = *opened->session;
  extract_tasks(session, options.top, options.min_share_percent);
  opened->progress.reset();
  Json tasks = Json::array();
  std::string text;
  for (const std::string& id : session.run().task_ids()) {
    const report::TaskView view{session.run().task(id), session.run().state(id)};
    tasks.push_back({{"task", id},
                     {"family", view.state.family},
                     {"share_percent", view.state.share_percent},
                     {"shapes", view.shapes()},
                     {"kernel", session.run().kernel_path(id).string()}});
    text += fmt::format("{:<32} {:>6.2f} %  {}\n", id, view.state.share_percent, view.shapes());
  }
  print_progress(options, {{"run_dir", session.run().directory().string()}, {"tasks", tasks}},
                 text + (tasks.empty() ? "no task" : "next: " + command_for("next", options)));
  return Exit::done;
}

Exit next(Options& options) {
  const auto opened = open_existing(options);
  Session& session = *opened->session;
  require_tasks(session);
  measure_baselines(session);
  plan::Scheduler scheduler = make_scheduler(session, {});
  opened->progress.reset();
  const auto ranking = scheduler.ranking();
  const auto chosen = scheduler.next();
  Json list = Json::array();
  std::string text;
  for (const plan::Standing& standing : ranking) {
    list.push_back({{"task", standing.task},
                    {"share", standing.share},
                    {"speedup", standing.speedup},
                    {"best_us", standing.best_us},
                    {"floor_us", standing.floor_us},
                    {"speedup_ceiling", standing.speedup_ceiling},
                    {"moved_on", standing.moved_on ? Json(*standing.moved_on) : Json()},
                    {"why", plan::Scheduler::why(standing)}});
    text += fmt::format("{} {:<32} {}{}\n", chosen == standing.task ? "→" : " ", standing.task, plan::Scheduler::why(standing),
                        standing.moved_on ? "  [" + *standing.moved_on + "]" : "");
  }
  print_progress(options, {{"next", chosen ? Json(*chosen) : Json()}, {"ranking", list}},
                 text + (chosen ? fmt::format("next: {}\nedit {}", *chosen, session.run().kernel_path(*chosen).string())
                                : "nothing is left that is worth the effort: " + command_for("verify", options)));
  return Exit::done;
}

Exit bench(Options& options) {
  if (options.self_test) return self_test(options);
  if (!options.solution.empty()) judge_solution(options);
  if (options.judge_rate) return judge_rate(options);
  if (const auto copy = working_copy(options)) return print_verdict(options, bench_in_working_copy(*copy, options));
  if (!options.suite.empty()) return bench_suite(options);
  const std::filesystem::path directory = existing_directory(options);
  SystemClock clock;
  Json result;
  const auto edited = [&](const store::Run& run, const std::string& task) {
    const std::filesystem::path path = run.kernel_path(task);
    if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path)) throw Error(path.string() + " is no plain file");
    return read_file(path);
  };
  const store::Run seen = store::Run::read_only(directory, clock);
  const std::string task = [&] {
    for (const std::string& id : seen.task_ids()) {
      if (id == options.task || (id.rfind(options.task, 0) == 0 && !options.task.empty())) return id;
    }
    return seen.state(options.task).id;  // says what there is
  }();
  const Json request = {
      {"verb", "bench"},
      {"arguments", {{"task", task}, {"note", options.note}, {"tune", options.tune}, {"kernel_text", edited(seen, task)}}}};
  if (const auto answered = ask_engine(directory, request)) {
    result = *answered;
  } else {
    const auto opened = open_existing(options);
    result = bench_kernel(*opened->session, {.task = task, .note = options.note, .kernel_text = edited(seen, task), .tune = options.tune});
    opened->progress.reset();
  }
  return print_verdict(options, result);
}

Exit optimize(Options& options) {
  check_agent(options);
  const auto opened = open_existing(options);
  Session& session = *opened->session;
  require_tasks(session);
  const std::string only = options.task.empty() ? std::string() : session.find_task(options.task);
  measure_baselines(session, only);
  const std::string why = search(session, options, only);
  session.save_state();
  opened->progress.reset();
  print_progress(
      options, report::final_json(report::view_of(session.run())),
      fmt::format("{}\nended: {}",
                  report::summary_text(report::view_of(session.run()), report::width_of(stdout), report::colour_for(stdout)), why));
  return stop_requested() ? Exit::interrupted : Exit::done;
}

Exit verify(Options& options) {
  const auto opened = open_existing(options);
  Session& session = *opened->session;
  require_tasks(session);
  bundle_winners(session);
  const Json verification = verify_model(session, options.rounds);
  opened->progress.reset();
  const report::RunView view = report::view_of(session.run());
  print_progress(options, verification, report::summary_text(view, report::width_of(stdout), report::colour_for(stdout)));
  return holds(verification) ? Exit::done : Exit::does_not_hold;
}

Exit export_kernels(Options& options) {
  check_export(options);
  const bool whole_run = std::filesystem::exists(std::filesystem::path(options.task) / "run.toml");
  if (whole_run) options.run_directory = options.task;
  const auto opened = open_existing(options);
  const std::string only = whole_run ? std::string() : opened->session->find_task(options.task);
  const Json request = export_request(*opened->session, options, only);
  opened->progress->phase("write and build the package");
  const Json written = write_export(request);
  opened->progress.reset();
  print_progress(options, written, export_text(written));
  return Exit::done;
}

Exit report(Options& options) {
  SystemClock clock;
  print_summary(store::Run::read_only(existing_directory(options), clock), options.json);
  return Exit::done;
}

}  // namespace ak::cli
