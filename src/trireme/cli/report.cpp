// `trireme report`: the page of a run folder, made from what the run has written so far.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "trireme/cli/commands.h"
#include "trireme/observe/run_report.h"

namespace trireme::cli {
namespace {

struct ReportFlags {
  std::string run = "runs/latest", out;
  bool json = false;
};

Json json_of(const std::optional<double>& number) {
  if (!number) return nullptr;
  return *number;
}

int run_report(const ReportFlags& flags) {
  const RunPaths run = run_at(flags.run);
  const RunStory story = story_of_run(run);
  const std::filesystem::path page = flags.out.empty() ? run.report() : std::filesystem::path(flags.out);
  write_report(page, story.report);
  if (flags.json) {
    print_json({{"report", page.string()},
                {"state", to_string(story.state)},
                {"step", story.step},
                {"steps", story.steps_wanted},
                {"training_loss", json_of(story.training_loss)},
                {"held_out_loss", json_of(story.held_out_loss)},
                {"seconds", story.seconds},
                {"parts", story.num_parts},
                {"checkpoints", story.report.checkpoints.size()}});
    return 0;
  }
  fmt::print("{}{}{}\n", story.report.verdict, story.report.verdict.empty() ? "" : " ", story.report.summary);
  for (const auto& [name, value] : story.report.facts) fmt::print("  {:<14}  {}\n", name, value);
  fmt::print("  {:<14}  {}   (a page for a browser)\n", "report", page.string());
  return 0;
}

}  // namespace

void add_report(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("report", "makes the page of a run: ended, killed or still going on");
  const auto flags = std::make_shared<ReportFlags>();
  command->add_option("RUN", flags->run, "the folder of a run")->capture_default_str();
  command->add_option("--out", flags->out, "where the page goes (RUN/report.html)")->type_name("FILE");
  command->add_flag("--json", flags->json, "one object on stdout: report, state, step, steps, losses, seconds, …");
  command->footer(
      "Reads events.jsonl and config.toml of the run and disturbs nobody. A run that ends by itself has made its "
      "page.\n"
      "\n"
      "Examples\n"
      "  trireme report runs/default-1\n"
      "  trireme report runs/default-1 --out /tmp/page.html\n"
      "\n"
      "Exit codes: 0 success, 1 a failure, 2 a wrong command line or no run. What the page shows: docs/runs.md");
  command->callback([flags, &exit_code] { exit_code = run_report(*flags); });
}

}  // namespace trireme::cli
