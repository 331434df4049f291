// The command line: words to options by CLI11, options to a command, errors to a message and an exit code.
#include <fmt/format.h>
#include <signal.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/kernelbench.h"
#include "cli/run_all.h"
#include "core/error.h"
#include "core/log.h"

namespace {

using ak::cli::Exit;
using ak::cli::Options;
using Command = std::function<Exit(Options&)>;

/// CLI11's own validators explain themselves with the range of a double.
const CLI::Validator more_than_zero(
    [](const std::string& text) { return std::strtod(text.c_str(), nullptr) > 0 ? "" : "must be more than 0"; }, "POSITIVE");
const CLI::Validator not_negative(
    [](const std::string& text) { return std::strtod(text.c_str(), nullptr) >= 0 ? "" : "must not be negative"; }, "NONNEGATIVE");

void add_settings(CLI::App& command, Options& options) {
  command.add_option("--dtype", options.request.dtype, "float32, float16 or bfloat16")->capture_default_str();
  command
      .add_option("--device", options.request.device, "cpu, cuda, auto (a GPU where there is one), or null (nothing is compiled or timed)")
      ->capture_default_str();
  command
      .add_option("--backend", options.request.backend,
                  "cpu, cuda, triton, both (the better of cuda and triton for each task) or auto (the device's)")
      ->capture_default_str();
  command.add_option("--seed", options.request.seed, "of inputs, weights and the search")->capture_default_str();
}

void add_request(CLI::App& command, Options& options) {
  command
      .add_option("MODEL", options.request.model,
                  "file.py:Class, module:Class, hf:CONFIG_DIR, or file.py:function that returns (model, inputs)")
      ->required();
  command.add_option("--input-shape", options.input_shape, "shape of the model's input, like 1,256; a function brings its own");
  add_settings(command, options);
  command.add_flag("--fresh", options.fresh, "start again in a new directory");
}

void add_rounds(CLI::App& command, Options& options) {
  command.add_option("--rounds", options.rounds, "measurements of each variant of the model at the end; 0: the model is not verified")
      ->capture_default_str()
      ->check(not_negative);
}

void add_selection(CLI::App& command, Options& options) {
  command.add_option("--top", options.top, "at most so many tasks")->capture_default_str()->check(more_than_zero);
  command.add_option("--min-share", options.min_share_percent, "no task of a region that takes less of the model's time, in percent")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
}

void add_budget(CLI::App& command, Options& options) {
  auto* minutes =
      command.add_option("--minutes", options.minutes, "minutes of search; set-up, baselines and verification come on top (default 10)")
          ->check(more_than_zero);
  command.add_option("--experiments", options.experiments, "end the search after so many trials in this run")
      ->check(not_negative)
      ->excludes(minutes);
}

void add_agent(CLI::App& command, Options& options) {
  auto* agent =
      command.add_option("--agent", options.agent,
                         "a coding agent that proposes first: claude, codex, gemini, or a command with {prompt} or {prompt_file} in it");
  command.add_option("--agent-minutes", options.agent_minutes, "of an agent on one task")
      ->capture_default_str()
      ->check(more_than_zero)
      ->needs(agent);
  command.add_option("--agent-rounds", options.agent_rounds, "verdicts that an agent has on one task")
      ->capture_default_str()
      ->check(more_than_zero)
      ->needs(agent);
  command.add_option("--agents", options.agents, "so many side by side, each on a task of its own")
      ->capture_default_str()
      ->check(more_than_zero)
      ->needs(agent);
  command.add_option("--agent-path", options.agent_paths, "a file or folder of the agent's own that it may use; may be repeated")
      ->needs(agent);
  command.add_option("--agent-variable", options.agent_variables, "an environment variable that it may see; may be repeated")->needs(agent);
}

void add_common(CLI::App& command, Options& options) {
  command.add_option("--run-dir", options.run_directory, "the run's directory");
  command.add_flag("--json", options.json, "machine-readable output on standard output");
}

void add_kernelbench(CLI::App& command, Options& options) {
  command
      .add_option("VERB", options.kernelbench.verb,
                  "list, setup (capture each problem), solve (search, write ModelNew), bench (judge what is there) or score")
      ->required()
      ->check(CLI::IsMember({"list", "setup", "solve", "bench", "score"}));
  command.add_option("--source", options.kernelbench.source, "a checkout of KernelBench");
  command.add_option("--level", options.kernelbench.level, "levels, like 1 or 1-3 (default: all)");
  command.add_option("--problems", options.kernelbench.problems, "numbers within the levels, like 1-20,36 (default: all)");
  command.add_option("--backend", options.request.backend, "of the kernels: cpu, cuda, triton, both or auto")->capture_default_str();
  command.add_option("--dtype", options.request.dtype, "float32, float16 or bfloat16")->capture_default_str();
  command.add_option("--experiments", options.experiments, "trials of the search for each problem (default 100)")->check(not_negative);
  command.add_option("--timeout", options.kernelbench.evaluation_s, "seconds that one evaluation may take, as the benchmark has it")
      ->capture_default_str()
      ->check(more_than_zero);
}

void add_state(CLI::App& command, Options& options) {
  command.add_option("--state", options.state_file,
                     "go on from this file where it is there, and write it: at most 16 MiB, enough for another machine of the kind");
}

struct CommandLine {
  CLI::App app{"AutoKernel: from any PyTorch model to a proven faster one.", "autokernel"};
  Options options;
  Command chosen;

  CommandLine() {
    app.set_version_flag("--version", AK_VERSION);
    app.require_subcommand(1);
    app.footer("A first run:  autokernel run examples/models/llama.py:Llama --input-shape 1,128 --device cpu --minutes 3");
    bool* verbose = &verbose_;
    app.add_flag_callback(
        "-v,--verbose", [verbose] { *verbose = true; }, "say more on standard error");

    CLI::App& doctor = add("doctor", "what is here, what is missing, and how to get it", ak::cli::doctor);
    doctor.add_flag("--json", options.json, "machine-readable output");

    CLI::App& run = add("run", "the whole job: profile, extract, search, put back, verify, report; resumes where it was", ak::cli::run);
    add_request(run, options);
    add_budget(run, options);
    add_agent(run, options);
    add_state(run, options);
    add_selection(run, options);
    add_rounds(run, options);
    add_common(run, options);

    CLI::App& run_all = add("run-all", "`run` for each model of a list: what takes seconds to start is started once", ak::cli::run_all);
    run_all.add_option("LIST", options.list, R"(a file like [{"model": "file.py:Class", "input_shape": "1,256", "run_dir": "DIR"}])")
        ->required()
        ->check(CLI::ExistingFile);
    add_settings(run_all, options);
    add_budget(run_all, options);
    add_selection(run_all, options);
    add_rounds(run_all, options);
    run_all.add_flag("--json", options.json, "machine-readable output on standard output");

    CLI::App& prepare = add("prepare", "make the run directory: load the model and capture its graph", ak::cli::prepare);
    add_request(prepare, options);
    add_common(prepare, options);

    add_common(add("profile", "measure the time of every node of the graph", ak::cli::profile), options);

    CLI::App& extract = add("extract", "match the families in the graph: a task for each kind of region", ak::cli::extract);
    add_selection(extract, options);
    add_common(extract, options);

    add_common(add("next", "which task is worth the next minutes, and why", ak::cli::next), options);

    CLI::App& bench = add("bench", "judge the edited kernel file of a task; keep or revert it", ak::cli::bench);
    auto& what = *bench.add_option_group("what");
    CLI::Option* task = what.add_option("TASK", options.task, "a task of the run, or the beginning of its name");
    CLI::Option* self_test =
        what.add_flag("--self-test", options.self_test, "judge the planted candidates of playbook/self_test and their honest twins");
    what.add_flag("--judge-rate", options.judge_rate, "judgements an hour, how far repeated ones agree, and copies on the judge's clock");
    CLI::Option* solution = what.add_option("--solution", options.solution, "judge a Python file with a class ModelNew; of lower trust");
    add_suite(bench, what);
    add_state(bench, options);
    what.require_option(1);
    CLI::Option* reference =
        bench.add_option("--reference", options.reference, "the Python file with Model, get_inputs and get_init_inputs")->needs(solution);
    solution->needs(reference);
    bench.add_option("--device", options.request.device, "without a task: cpu, cuda or auto")->excludes(task);
    bench
        .add_option("--minutes", options.minutes,
                    "of the judge's rate: how long the search feeds it (default 1); of the suite: baselines and all (default 10)")
        ->check(more_than_zero)
        ->excludes(task);
    bench
        .add_option("--crashes", options.crashes,
                    "instead of each pair once: so many crashes, hangs and memory hogs in a row, and what they leave")
        ->needs(self_test)
        ->check(not_negative);
    bench.add_option("--rounds", options.rounds, "timed calls of a solution; 0: correctness only")->needs(solution)->check(not_negative);
    bench.add_option("--note", options.note, "what was changed, and why");
    bench.add_option("--tune", options.tune, "let the search turn the file's tunables for so many trials")->check(not_negative);
    add_common(bench, options);

    CLI::App& optimize = add("optimize", "search: all tasks by expected gain, or one", ak::cli::optimize);
    optimize.add_option("TASK", options.task, "only this task");
    add_budget(optimize, options);
    add_agent(optimize, options);
    add_state(optimize, options);
    add_common(optimize, options);

    CLI::App& verify = add("verify", "put the winners back into the model and measure the whole", ak::cli::verify);
    verify.add_option("--rounds", options.rounds, "measurements of each variant of the model")
        ->capture_default_str()
        ->check(more_than_zero);
    add_common(verify, options);

    CLI::App& exporting = add("export", "kept kernels as a package that needs no AutoKernel", ak::cli::export_kernels);
    exporting.add_option("TASK|RUN", options.task, "a task of the run, or a run directory for every kernel in its model")->required();
    exporting.add_option("DIR", options.export_directory, "a new or empty directory")->required();
    exporting.add_option("--to", options.to, "hf (for the kernels package of Hugging Face) or torch (a Python package)")->required();
    exporting.add_option("--name", options.name, "of the package; default ak-<family>");
    exporting.add_option("--push", options.push, "a repository of the Hugging Face Hub to upload to");
    add_common(exporting, options);
    CLI::App& kernelbench = add("kernelbench", "the problems of a KernelBench checkout: solve them, judge and score", ak::cli::kernelbench);
    add_kernelbench(kernelbench, options);
    add_common(kernelbench, options);

    add_common(add("report", "summary table, report.html and progress.svg", ak::cli::report), options);
  }

  int run(int count, char** words) {
    try {
      app.parse(count, words);
    } catch (const CLI::ParseError& error) {
      if (const std::string unknown = unknown_command(count, words); !unknown.empty()) return explain_unknown(unknown);
      const int code = app.exit(error);
      return code == 0 ? 0 : static_cast<int>(Exit::usage);
    }
    if (verbose_) ak::set_log_level("info");
    return static_cast<int>(chosen(options));
  }

 private:
  std::vector<std::string> command_names() const {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands(std::function<bool(const CLI::App*)>())) names.push_back(command->get_name());
    return names;
  }

  /// The first word, if it is meant as a command and is none.
  std::string unknown_command(int count, char** words) const {
    const std::vector<std::string> known = command_names();
    const auto word = std::find_if(words + 1, words + count, [](const char* text) { return text[0] != '-'; });
    return word == words + count || std::ranges::find(known, *word) != known.end() ? "" : *word;
  }

  void add_suite(CLI::App& bench, CLI::App& what) {
    CLI::Option* suite = what.add_option("--suite", options.suite, "search and measure the standard shapes of playbook/suite/NAME.toml");
    bench.add_option("--families", options.rows.families, "of the suite, only these")->delimiter(',')->needs(suite);
    bench.add_option("--dtype", options.rows.dtypes, "of the suite, instead of its own")->delimiter(',')->needs(suite);
    bench.add_option("--shapes", options.rows.shapes, "of the suite, only these: 8192x8192,4096x1024")->delimiter(',')->needs(suite);
    bench.add_option("--backend", options.request.backend, "of the suite: cpu, cuda, triton, both (a row each) or auto (the device's)")
        ->capture_default_str()
        ->needs(suite);
    bench.add_option("--trials", options.trials, "of the suite, at most so many a row")->check(not_negative)->needs(suite);
    bench.add_flag("--fresh", options.fresh, "of the suite: start again in a new directory")->needs(suite);
  }

  int explain_unknown(const std::string& word) const {
    fmt::print(stderr, "autokernel: there is no command '{}'\n  → the commands are {}; `autokernel COMMAND --help` says more\n", word,
               fmt::join(command_names(), ", "));
    return static_cast<int>(Exit::usage);
  }

  CLI::App& add(const std::string& name, const std::string& summary, Command command) {
    CLI::App* sub = app.add_subcommand(name, summary);
    sub->callback([this, command] { chosen = command; });
    return *sub;
  }

  bool verbose_ = false;
};

/// To the person on standard error, and to a program that reads --json as the last line.
void report_failure(const std::string& message, const std::string& what_to_do, bool json) {
  fmt::print(stderr, "autokernel: {}\n", message);
  if (!what_to_do.empty()) fmt::print(stderr, "  → {}\n", what_to_do);
  if (json)
    fmt::print("{}\n", ak::Json{{"error", {{"message", message}, {"what_to_do", what_to_do}}}}.dump(-1, ' ', false,
                                                                                                    ak::Json::error_handler_t::replace));
}

}  // namespace

int main(int count, char** words) {
  ::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write()
  CommandLine line;
  try {
    return line.run(count, words);
  } catch (const ak::Error& error) {
    report_failure(error.what(), error.what_to_do(), line.options.json);
  } catch (const std::exception& error) {
    report_failure(error.what(), "", line.options.json);
  }
  return static_cast<int>(Exit::failed);
}
