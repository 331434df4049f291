// The page is put together from sections; every piece of text from outside is escaped where it goes in.
#include "report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "report/plot.h"
#include "report/summary.h"
#include "report/text.h"

namespace ak::report {
namespace {

const char* const page_style =
    R"(:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--text:#1b1f27;--muted:#626b7a;--line:#e3e6ec;--good:#0f8a5f;--bad:#c2341d;--accent:#2563eb;--track:#eceff4}
@media (prefers-color-scheme:dark){:root{--bg:#0f1217;--card:#171b22;--text:#e7eaf0;--muted:#98a2b3;--line:#2b313c;--good:#4cd6a0;--bad:#ff8a73;--accent:#6ea8fe;--track:#232934}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}h1{font-size:26px;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:18px;margin:0 0 12px}p{margin:0 0 12px}.muted{color:var(--muted)}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px;margin-top:20px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin-top:20px}.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:16px}
.card b{display:block;font-size:26px;font-variant-numeric:tabular-nums}.card span{color:var(--muted);font-size:13px}
.scroll{overflow-x:auto;margin-bottom:12px}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th{color:var(--muted);font-weight:600;font-size:13px;text-align:left}
th,td{padding:7px 10px 7px 0;border-bottom:1px solid var(--line);vertical-align:top}tr:last-child td{border-bottom:0}.n{text-align:right;white-space:nowrap}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad)}code,pre{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,monospace}pre{background:var(--track);border-radius:8px;padding:12px;overflow-x:auto;margin:0 0 12px}
.dot{display:inline-block;width:10px;height:10px;border-radius:50%;background:var(--c);margin-right:8px}.bar{position:relative;height:18px;background:var(--track);border-radius:4px;overflow:hidden}
.bar i{position:absolute;left:0;top:0;bottom:0;background:var(--c);opacity:.3}.bar i.after{opacity:1}svg.ak-plot{width:100%;height:auto;display:block}
.interval{position:relative;height:18px;min-width:200px;background:var(--track);border-radius:4px}.interval i{position:absolute;top:0;bottom:0;width:1px;background:var(--muted)}
.interval b{position:absolute;top:6px;height:6px;border-radius:3px;background:var(--accent)}details{margin-top:8px}summary{cursor:pointer;overflow-wrap:anywhere}
)";

std::string card(const std::string& value, const std::string& label, bool good = false) {
  return fmt::format("<div class=\"card\"><b{}>{}</b><span>{}</span></div>\n", good ? " class=\"good\"" : "", escape(value), escape(label));
}

std::string section(const std::string& title, const std::string& body) {
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", escape(title), body);
}

std::string header(const RunView& run) {
  std::string shape;
  for (const int64_t size : run.request.input_shape) shape += fmt::format("{}{}", shape.empty() ? ", input " : "×", size);
  return fmt::format("<h1>{}</h1>\n<p class=\"muted\">{}{}, on {} by {} kernels, seed {}</p>\n", escape(run.request.model),
                     escape(run.request.dtype), shape, escape(run.request.device), escape(run.request.backend), run.request.seed);
}

std::string cards(const RunView& run) {
  std::string text = "<div class=\"cards\">\n";
  for (const Comparison& row : comparisons(run)) {
    text += card(fmt::format("{:.2f}x", row.speedup),
                 fmt::format("the model against {} ({:.2f} to {:.2f})", row.name, row.ci_low, row.ci_high), row.ci_low > 1);
  }
  text += card(fmt::format("{} of {}", run.kernels_better(), run.tasks.size()), "kernels faster than the best baseline",
               run.kernels_better() > 0);
  text += card(fmt::format("{}", run.trials()), fmt::format("experiments, {} kept", run.kept()));
  return text + "</div>\n";
}

std::string kernel_row(const RunView& run, const TaskView& view, size_t index) {
  const store::TaskState& state = view.state;
  const bool better = state.beats_baseline();
  const auto& baseline = state.baseline;
  const std::string bound = view.bound();
  return fmt::format(
      "<tr><td><span class=\"dot {}\"></span><code>{}</code><br/><span class=\"muted\">{}</span></td><td class=\"n\">{:.1f} %</td><td "
      "class=\"n\">{}</td><td class=\"n\">{}<br/><span class=\"muted\">{}</span></td>"
      "<td class=\"n\">{}<br/><span class=\"muted\">{}</span></td><td class=\"n\">{}</td><td class=\"n{}\">{}</td><td>{}</td></tr>\n",
      colour_class(index), escape(state.id), escape(view.shapes()), state.share_percent, time_text(baseline ? baseline->eager_us : 0),
      time_text(view.baseline_us()), escape(baseline ? baseline->best_kind : ""), time_text(view.kernel_us()),
      bound.empty() ? "" : "bound by " + bound, time_text(baseline ? baseline->floor_us : 0), better ? " good" : "",
      factor_text(view.speedup()),
      run.uses(view) ? "kept"
      : better       ? "faster alone, not in the model"
                     : "the baseline is kept");
}

std::string kernel_table(const RunView& run) {
  std::string rows;
  for (size_t i = 0; i < run.tasks.size(); ++i) rows += kernel_row(run, run.tasks[i], i);
  return fmt::format(
      "<div class=\"scroll\"><table><thead><tr><th>task</th><th class=\"n\">share of time</th><th class=\"n\">eager</th><th "
      "class=\"n\">best baseline</th><th class=\"n\">ours</th><th class=\"n\">floor</th>"
      "<th class=\"n\">speed-up</th><th>outcome</th></tr></thead>\n<tbody>\n{}</tbody></table></div>\n<p class=\"muted\">Times are medians "
      "of one call with cold caches. The speed-up is against the best baseline, "
      "whichever that is. The floor is the least time that the measured bandwidth and arithmetic of this device allow.</p>\n",
      rows);
}

std::string amdahl_bars(const RunView& run) {
  double largest = 1;
  for (const TaskView& view : run.tasks) largest = std::max(largest, view.state.share_percent);
  std::string rows;
  for (size_t i = 0; i < run.tasks.size(); ++i) {
    const TaskView& view = run.tasks[i];
    const double share = view.state.share_percent, eager = view.state.baseline ? view.state.baseline->eager_us : 0;
    const double after = view.state.beats_baseline() && eager > 0 ? share * std::min(1.0, view.state.incumbent->median_us / eager) : share;
    rows += fmt::format(
        "<tr class=\"{}\"><td><code>{}</code></td><td style=\"width:60%\"><div class=\"bar\"><i style=\"width:{:.2f}%\"></i><i "
        "class=\"after\" style=\"width:{:.2f}%\"></i></div></td>"
        "<td class=\"n\">{:.1f} % → {:.1f} %</td></tr>\n",
        colour_class(i), escape(view.state.id), 100 * share / largest, 100 * after / largest, share, after);
  }
  return fmt::format(
      "<p class=\"muted\">Share of the eager forward before (pale) and with the kept kernels (full), in per cent of the forward before. A "
      "kernel can gain the model no more than its own bar.</p>\n"
      "<div class=\"scroll\"><table><tbody>\n{}</tbody></table></div>\n",
      rows);
}

std::string interval_row(const Comparison& row, double low, double high) {
  const auto at = [&](double value) { return 100 * (std::clamp(value, low, high) - low) / (high - low); };
  const std::string time = row.us > 0 ? time_text(row.us) : "–";
  return fmt::format(
      "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n{}\">{:.3f}x</td><td class=\"n\">{:.3f} to {:.3f}</td><td><div "
      "class=\"interval\"><i style=\"left:{:.1f}%\"></i>"
      "<b style=\"left:{:.1f}%;width:{:.1f}%\"></b></div></td></tr>\n",
      escape(row.name), time, row.ci_low > 1 ? " good" : "", row.speedup, row.ci_low, row.ci_high, at(1), at(row.ci_low),
      std::max(0.5, at(row.ci_high) - at(row.ci_low)));
}

std::string taken_out_list(const RunView& run) {
  std::string items;
  for (const auto& [task, reason] : run.taken_out())
    items += fmt::format("<li><code>{}</code> was taken out again: {}</li>\n", escape(task), escape(reason));
  return items.empty() ? items : "<ul>\n" + items + "</ul>\n";
}

std::string replaced_table(const Json& end_to_end) {
  std::string rows;
  for (const Json& replaced : end_to_end.value("replaced", Json::array())) {
    if (!replaced.is_object()) continue;
    rows += fmt::format("<tr><td><code>{}</code></td><td class=\"n\">{:.0f}</td></tr>\n", escape(replaced.value("task", "")),
                        number_or_zero(replaced, "calls"));
  }
  if (rows.empty()) return "<p>No region was replaced.</p>\n";
  return fmt::format(
      "<div class=\"scroll\"><table><thead><tr><th>replaced in the model</th><th "
      "class=\"n\">calls</th></tr></thead><tbody>\n{}</tbody></table></div>\n",
      rows);
}

std::string end_to_end(const RunView& run) {
  const auto rows = comparisons(run);
  if (rows.empty())
    return fmt::format("<p>Not verified in the model yet. Run <code>autokernel verify --run-dir {}</code>.</p>\n", escape(run.directory));
  double low = 0.9, high = 1.1;
  for (const Comparison& row : rows) {
    low = std::min(low, row.ci_low);
    high = std::max(high, row.ci_high);
  }
  std::string table;
  for (const Comparison& row : rows) table += interval_row(row, low, high);
  const Json& verified = run.end_to_end();
  return fmt::format(
      "<div class=\"scroll\"><table><thead><tr><th>the model against</th><th class=\"n\">its time</th><th class=\"n\">speed-up</th><th "
      "class=\"n\">95 % interval</th><th>1.0 is the thin line</th></tr></thead>\n<tbody>\n{}</tbody></table></div>\n"
      "<p>Parity with float64: the error is {:.2f} times eager's in the maximum (2 is allowed) and {:.2f} times in the norm (1.25 is "
      "allowed).</p>\n{}{}",
      table, number_or_zero(verified, "max_error_over_eager_error"), number_or_zero(verified, "norm_error_over_eager_error"),
      replaced_table(verified), taken_out_list(run));
}

std::string trial_row(const store::Trial& trial) {
  const char* const style = trial.verdict == "kept" ? "good" : trial.verdict == "slower" ? "muted" : "bad";
  const std::string verdict = trial.rule.empty() ? trial.verdict : trial.verdict + " (" + trial.rule + ")";
  return fmt::format(
      "<tr><td class=\"n\">{}</td><td class=\"{}\">{} {}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
      trial.experiment, style, mark_of(trial.verdict), escape(verdict), time_text(trial.median_us), factor_text(trial.speedup_vs_best),
      escape(trial.note));
}

std::string experiments(const RunView& run) {
  std::string text;
  for (size_t i = 0; i < run.tasks.size(); ++i) {
    const TaskView& view = run.tasks[i];
    std::string rows, counts, point;
    for (const store::Trial& trial : view.state.trials) rows += trial_row(trial);
    for (const auto& [verdict, count] : view.verdicts()) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, verdict);
    if (view.state.incumbent) {
      for (const auto& [name, value] : view.state.incumbent->point) point += fmt::format(" {}={}", name, value);
    }
    text += fmt::format("<details><summary><span class=\"dot {}\"></span><code>{}</code> {}</summary>\n", colour_class(i),
                        escape(view.state.id), escape(counts.empty() ? "none tried" : counts));
    if (!point.empty()) text += fmt::format("<p>Best point:<code>{}</code></p>\n", escape(point));
    for (const std::string& kernel : view.kernels()) text += fmt::format("<p>{}</p>\n", escape(kernel));
    if (view.state.moved_on) text += fmt::format("<p class=\"muted\">Left: {}</p>\n", escape(*view.state.moved_on));
    text += fmt::format(
        "<div class=\"scroll\"><table><thead><tr><th class=\"n\">#</th><th>verdict</th><th class=\"n\">median</th><th "
        "class=\"n\">speed-up</th><th>what</th></tr></thead><tbody>\n{}</tbody></table></div></details>\n",
        rows.empty() ? "<tr><td>–</td><td>–</td><td>–</td><td>–</td><td>–</td></tr>\n" : rows);
  }
  return text;
}

std::string replay(const RunView& run) {
  const std::string directory = escape(run.directory);
  return fmt::format(
      "<p>Use the kernels, in a program of your own:</p>\n<pre>model = torch.compile(model, backend=&quot;autokernel&quot;, "
      "options={{&quot;run&quot;: &quot;{}&quot;}})</pre>\n"
      "<p>Measure the gain again on this machine, and write this page again:</p>\n<pre>autokernel verify --run-dir {}\nautokernel report "
      "--run-dir {}</pre>\n"
      "<p>Every number here comes from <code>journal.jsonl</code> and <code>verification.json</code> in that directory. The kept kernels "
      "are in <code>tasks/*/best.*</code>, each earlier one in <code>tasks/*/history/</code>.</p>\n",
      directory, directory, directory);
}

}  // namespace

std::string html_report(const RunView& run) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\"/>\n<title>{} – AutoKernel</title>\n<style>{}{}</style>\n</head>\n"
      "<body class=\"ak-plot\">\n<main>\n{}{}{}{}{}{}{}{}</main>\n</body>\n</html>\n",
      escape(run.request.model), plot_style(), page_style, header(run), cards(run), section("In the model", end_to_end(run)),
      section("Kernels", kernel_table(run)),
      section("Progress",
              progress_svg(run, true) +
                  "<p class=\"muted\">Filled: kept. Hollow: right, but slower. Crosses: failed. Point at a mark for what it was.</p>\n"),
      section("What it means for the whole", amdahl_bars(run)), section("Experiments", experiments(run)), section("Replay", replay(run)));
}

std::filesystem::path write_report(const store::Run& run) {
  const RunView view = view_of(run);
  write_file(run.directory() / "progress.svg", progress_svg(view));
  write_file(run.directory() / "report.html", html_report(view));
  return run.directory() / "report.html";
}

}  // namespace ak::report
