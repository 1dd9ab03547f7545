// `trireme schedule`: draws pipeline schedules, times and checks them, built-in ones and those of users.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/schedule_report.h"
#include "trireme/observe/append_file.h"
#include "trireme/program/schedules/schedule_csv.h"

namespace trireme::cli {
namespace {

struct ScheduleFlags {
  std::string kind = "1f1b", file, svg, csv;
  int ranks = 4, micro_batches = 8, interleave = 0, update_every = 0, buffers = 1;
  StageTimes times = StageTimes::equal(1, 1, 1, 1, 0);
  bool recompute = false, messages = false, json = false, text = false;
};

void show(const CheckedSchedule& checked, const ScheduleFlags& flags) {
  if (!flags.svg.empty()) replace_file(flags.svg, svg_report(checked));
  if (!flags.csv.empty()) {
    replace_file(flags.csv, schedule_to_csv(flags.messages ? schedule_of(checked.programs) : checked.schedule));
  }
  if (flags.json) {
    fmt::print("{}\n", json_report(checked));
  } else if (flags.text) {
    for (size_t rank = 0; rank < checked.programs.size(); ++rank) {
      fmt::print("{}rank {}\n{}", rank == 0 ? "" : "\n", rank, checked.programs[rank].to_string());
    }
  } else {
    fmt::print("{}", terminal_report(checked));
  }
}

int show_kind(const ScheduleFlags& flags) {
  const ScheduleKind kind = schedule_kind(flags.kind);
  const Schedule schedule = make_schedule({.kind = kind,
                                           .num_ranks = flags.ranks,
                                           .num_micro_batches = flags.micro_batches,
                                           .interleave = flags.interleave,
                                           .update_every = flags.update_every,
                                           .times = flags.times});
  show(check_schedule(std::string(name_of(kind)), schedule, flags.times, flags.recompute, {}), flags);
  return 0;
}

int check_file(const ScheduleFlags& flags) {
  const std::string name = std::filesystem::path(flags.file).filename();
  const Schedule schedule = read_schedule(flags.file);
  try {
    const CheckedSchedule checked =
        check_schedule(name, schedule, flags.times, flags.recompute, {.sends_under_way = flags.buffers});
    if (!flags.json && !flags.text) fmt::print("{} can run\n", flags.file);
    show(checked, flags);
  } catch (const UsageError& error) {  // what the file says makes no sense
    throw UsageError(fmt::format("{}: {}", flags.file, error.what()));
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {  // it makes sense, but would not work
    if (!flags.json) throw Error(fmt::format("{}: {}", flags.file, error.what()));
    Json json = {{"kind", name}};
    json.update(failure_json(error));
    print_json(json);
    return 1;
  }
  return 0;
}

/// What show and check have in common.
void add_flags(CLI::App& command, ScheduleFlags& flags) {
  const auto add_times = [&](const char* name, std::vector<double>& values, const char* what) {
    command.add_option(name, values, what)->type_name("MS,...")->delimiter(',')->allow_extra_args(false);
  };
  add_times("--forward-ms", flags.times.forward, "forward pass of a micro-batch: one time, or one a stage (1)");
  add_times("--backward-ms", flags.times.backward, "its backward pass for inputs (1)");
  add_times("--weight-ms", flags.times.weight, "its backward pass for weights (1)");
  add_times("--comm-ms", flags.times.comm, "a message to the next stage, or back (0)");
  command.add_flag("--recompute", flags.recompute, "forward passes keep their inputs alone, and are repeated");
  command.add_option("--svg", flags.svg, "writes the picture")->type_name("FILE");
  command.add_option("--csv", flags.csv, "writes the schedule as PyTorch's pipelining does, one row per rank")
      ->type_name("FILE");
  command.add_flag("--messages", flags.messages, "the CSV has sends and receives as well");
  command.add_flag("--text", flags.text, "prints every instruction of every rank");
  command.add_flag("--json", flags.json, "one object on stdout: makespan_ms, bubble_rate, peak_activations, …");
}

}  // namespace

void add_schedule(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("schedule", "draws, times and checks pipeline schedules");
  command->require_subcommand(1);
  command->footer(
      "Examples\n"
      "  trireme schedule show --kind zb-h1 --stages 4 --microbatches 8\n"
      "  trireme schedule check mine.csv\n"
      "\n"
      "Exit codes: 0 success, 1 a schedule that cannot run, 2 a wrong command line. How it works: docs/programs.md");

  const auto shown = std::make_shared<ScheduleFlags>();
  CLI::App* show_command = command->add_subcommand("show", "a built-in schedule: who computes what and when");
  std::vector<std::string_view> synchronous, asynchronous;
  for (const ScheduleKind kind : schedule_kinds()) {
    (is_synchronous(kind) ? synchronous : asynchronous).push_back(name_of(kind));
  }
  show_command->add_option("--kind", shown->kind, "the schedule; all are named below")
      ->type_name("NAME")
      ->capture_default_str();
  show_command->add_option("--stages", shown->ranks, "ranks along the pipeline")->type_name("N")->capture_default_str();
  show_command->add_option("--microbatches", shown->micro_batches, "of one replica")
      ->type_name("N")
      ->capture_default_str();
  show_command->add_option("--interleave", shown->interleave, "interleaved-1f1b: stages per rank (2)")->type_name("N");
  show_command
      ->add_option("--update-every", shown->update_every, "pipedream, pipedream-2bw: micro-batches in an update")
      ->type_name("N");
  add_flags(*show_command, *shown);
  show_command->footer(fmt::format(
      "Kinds\n  {}\n  {}\n"
      "\n"
      "Times are those of a rank's whole share of a micro-batch; its stages share them, or each gets its own.\n"
      "\n"
      "Examples\n"
      "  trireme schedule show --kind 1f1b --stages 4 --microbatches 8\n"
      "  trireme schedule show --kind zb-h2 --stages 8 --microbatches 24 --forward-ms 18.522 --backward-ms 18.086\n"
      "  trireme schedule show --kind interleaved-1f1b --interleave 3 --forward-ms 1,1,1,2 --svg picture.svg",
      join(synchronous, ", "), join(asynchronous, ", ")));
  show_command->callback([shown, &exit_code] { exit_code = show_kind(*shown); });

  const auto checked = std::make_shared<ScheduleFlags>();
  CLI::App* check_command = command->add_subcommand("check", "whether a schedule of yours can run, and what it costs");
  check_command->add_option("FILE", checked->file, "CSV, one row per rank, cells such as 0F0, 1B2, 1I2, 1W2, 0SEND_F0")
      ->required();
  check_command->add_option("--buffers", checked->buffers, "sends that may be under way unreceived on a channel")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  add_flags(*check_command, *checked);
  check_command->footer(
      "Without sends and receives in the file, they are placed for it.\n"
      "\n"
      "Examples\n"
      "  trireme schedule show --kind zb-v --csv mine.csv\n"
      "  trireme schedule check mine.csv --weight-ms 0.5");
  check_command->callback([checked, &exit_code] { exit_code = check_file(*checked); });
}

}  // namespace trireme::cli
