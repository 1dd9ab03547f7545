#include "trireme/cli/bench_train_precision.h"

#include <fmt/format.h>

#include "trireme/base/units.h"
#include "trireme/cli/bench_train_report.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

/// "bfloat16, gradients float32"
std::string name_of_row(const BenchTrainRun& run, size_t row) {
  const std::string& type = run.plan.cases[run.plan.precisions[row]].config.precision.compute;
  return row == 0 ? type : fmt::format("{}, gradients {}", type, row == 1 ? "float32" : type);
}

std::string share_text(uint64_t part, uint64_t whole) {
  return whole > 0 ? fmt::format("{:.0f} %", 100 * static_cast<double>(part) / static_cast<double>(whole)) : "–";
}

Table table_of(const std::vector<std::string>& headers) {
  std::vector<Column> columns = {{"precision", Align::kLeft}};
  for (const std::string& header : headers) columns.emplace_back(header, Align::kRight);
  return Table(columns);
}

std::string speed_table(const BenchTrainRun& run) {
  const std::string unit = run.main_result().unit == "tokens" ? "tok/s" : "samples/s";
  Table table = table_of({unit, "step ms", "peak memory", "loss"});
  for (size_t row = 0; row < run.plan.precisions.size(); ++row) {
    const BenchTrainResult& r = run.results[run.plan.precisions[row]];
    table.add_row({name_of_row(run, row), per_second_text(r.units_per_second), ms_text(r.step_ms),
                   format_bytes(r.peak_memory_bytes), fmt::format("{:.4f}", r.loss)});
  }
  return table.to_text({.indent = 2});
}

/// What the model computes with, apart from what the optimizer keeps in float32 whatever the precision is.
std::string memory_table(const BenchTrainRun& run) {
  const auto in_use = [](const BenchTrainResult& r) { return r.weight_bytes + r.gradient_bytes + r.activation_bytes; };
  Table table =
      table_of({"weights", "gradients", "activations", "together", "of float32", "optimizer", "all", "of float32"});
  const BenchTrainResult& full = run.results[run.plan.precisions[0]];
  for (size_t row = 0; row < run.plan.precisions.size(); ++row) {
    const BenchTrainResult& r = run.results[run.plan.precisions[row]];
    const uint64_t all = in_use(r) + r.optimizer_bytes;
    table.add_row({name_of_row(run, row), format_bytes(r.weight_bytes), format_bytes(r.gradient_bytes),
                   r.activation_bytes > 0 ? format_bytes(r.activation_bytes) : "–", format_bytes(in_use(r)),
                   share_text(in_use(r), in_use(full)), format_bytes(r.optimizer_bytes), format_bytes(all),
                   share_text(all, in_use(full) + full.optimizer_bytes)});
  }
  return table.to_text({.indent = 2});
}

std::string wire_table(const BenchTrainRun& run) {
  const BenchTrainResult& full = run.results[run.plan.precisions[0]];
  const bool by_messages = full.sent_bytes_per_step > 0;
  std::vector<std::string> headers = {"reduced a step", "of float32"};
  if (by_messages) headers.insert(headers.end(), {"sent a step", "of float32"});
  Table table = table_of(headers);
  for (size_t row = 0; row < run.plan.precisions.size(); ++row) {
    const BenchTrainResult& r = run.results[run.plan.precisions[row]];
    std::vector<std::string> cells = {name_of_row(run, row), format_bytes(r.reduced_bytes_per_step),
                                      share_text(r.reduced_bytes_per_step, full.reduced_bytes_per_step)};
    if (by_messages) {
      cells.push_back(format_bytes(r.sent_bytes_per_step));
      cells.push_back(share_text(r.sent_bytes_per_step, full.sent_bytes_per_step));
    }
    table.add_row(cells);
  }
  return table.to_text({.indent = 2});
}

}  // namespace

std::string bench_train_precision_tables(const BenchTrainRun& run, bool colour) {
  const std::string& layout = run.main_case().name;
  const auto title = [&](const std::string& words) {
    return "\n" + emphasised(words + ", " + layout, Emphasis::kBold, colour) + "\n";
  };
  return title("precision") + speed_table(run) + title("memory of worker 0 by precision") + memory_table(run) +
         title("bytes on the wire by precision") + wire_table(run);
}

}  // namespace trireme::cli
