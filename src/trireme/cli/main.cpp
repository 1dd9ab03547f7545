// The program `trireme`: parses the command line, runs one command, and turns whatever goes wrong into one message.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/commands.h"

namespace trireme::cli {
namespace {

constexpr int kUsage = 2;

/// Short lines in the order: what it is, what it takes, how it is used (the footer: examples and what to try next).
class Help : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    const std::string path = path_of(app);
    std::string text = fmt::format("{}: {}\n", path, app->get_description());
    const auto commands = app->get_subcommands([](const CLI::App*) { return true; });
    if (!commands.empty()) {
      text += "\n";
      for (const CLI::App* command : commands) {
        text += fmt::format("  {:<24}  {}\n", path + " " + command->get_name(), command->get_description());
      }
    }
    std::vector<const CLI::Option*> shown = app->get_options([](const CLI::Option* option) {
      return !option->get_group().empty();  // the others are spellings that need no mention
    });
    std::stable_partition(shown.begin(), shown.end(), [app](const CLI::Option* o) { return o != app->get_help_ptr(); });
    std::string options;
    for (const CLI::Option* option : shown) {
      const std::string name = names_of(*option);
      const std::string gap = name.size() > 24 ? "\n" + std::string(28, ' ') : std::string(26 - name.size(), ' ');
      const std::string fallback = option->get_default_str();
      options += fmt::format("  {}{}{}{}\n", name, gap, option->get_description(),
                             fallback.empty() ? "" : " (default " + fallback + ")");
    }
    text += "\n" + options;
    const std::string footer = app->get_footer();
    return footer.empty() ? text : text + "\n" + footer + "\n";
  }

 private:
  static std::string path_of(const CLI::App* app) {
    return app->get_parent() == nullptr ? app->get_name() : path_of(app->get_parent()) + " " + app->get_name();
  }

  static std::string names_of(const CLI::Option& option) {
    std::vector<std::string> names;
    for (const std::string& name : option.get_snames()) names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
    if (names.empty()) return option.get_name(true);
    const std::string type = option.get_type_size() == 0 ? "" : " " + option.get_type_name();
    return join(names, ", ") + type;
  }
};

/// The command that the user had reached when parsing stopped.
const CLI::App* reached(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string help_hint(const CLI::App& app) {
  std::string path;
  for (const CLI::App* at = reached(&app); at != nullptr; at = at->get_parent()) path = at->get_name() + " " + path;
  return "see: " + path + "--help";
}

/// "unknown flag --nproc-per-nod", with the nearest known name.
UsageError unknown_argument(const CLI::App& app) {
  const CLI::App* command = reached(&app);
  std::vector<std::string> rest = command->remaining();
  if (rest.empty()) rest = app.remaining(true);
  const std::string given = rest.empty() ? "" : rest.front().substr(0, rest.front().find('='));
  const bool flag = given.starts_with("-");
  std::vector<std::string> known;
  if (flag) {
    for (const CLI::App* at = command; at != nullptr; at = at->get_parent()) {
      for (const CLI::Option* option : at->get_options()) {
        for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
      }
    }
  } else {
    for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; })) {
      known.push_back(sub->get_name());
    }
  }
  const std::string kind = flag ? "flag" : known.empty() ? "argument" : "command";
  const auto meant = nearest(given, known);
  return UsageError(fmt::format("unknown {} {}", kind, given),
                    meant ? fmt::format("did you mean {}?", *meant) : help_hint(app));
}

/// Whether the command that the user had reached prints JSON, and is asked to.
bool wants_json(const CLI::App& app, std::span<char*> words) {
  return reached(&app)->get_option_no_throw("--json") != nullptr &&
         std::find(words.begin(), words.end(), std::string_view("--json")) != words.end();
}

int report(const std::exception& error, int exit_code, bool json) {
  if (json && dynamic_cast<const ToldError*>(&error) == nullptr) print_json(failure_json(error));
  std::fflush(stdout);
  fmt::print(stderr, "error: {}\n", error.what());
  return exit_code;
}

int run(int argc, char** argv) {
  // The program to launch and its arguments are not ours to parse.
  int own_argc = argc;
  if (argc > 1 && std::string_view(argv[1]) == "launch") {
    own_argc = static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
  }
  int exit_code = 0;
  CLI::App app("trains deep-learning models across processes, GPUs and machines", "trireme");
  const auto failed = [&](const std::exception& error, int code) {
    return report(error, code, wants_json(app, {argv, static_cast<size_t>(own_argc)}));
  };
  try {
    app.formatter(std::make_shared<Help>());
    app.set_help_flag("-h,--help", "this text; every command has its own");
    app.set_version_flag(
        "--version", [] { return "trireme " + version_text(); }, "the version");
    app.require_subcommand(0, 1);
    add_trace(app, exit_code);
    add_train(app, exit_code);
    add_launch(app, {argv + std::min(own_argc + 1, argc), argv + argc}, exit_code);
    add_bench(app, exit_code);
    add_checkpoint(app, exit_code);
    add_plan(app, exit_code);
    add_report(app, exit_code);
    add_schedule(app, exit_code);
    add_simulate(app, exit_code);
    add_verify(app, exit_code);
    add_doctor(app, exit_code);
    app.footer(
        "Try first\n"
        "  trireme doctor                                   is everything here that training needs?\n"
        "  trireme train                                    two workers learn sums and a grammar in a minute\n"
        "  trireme launch --nproc-per-node 2 -- ./program   your own program on the library, as two ranks\n"
        "\n"
        "Exit codes: 0 success, 1 failure, 2 a wrong command line, 130 Ctrl-C (train saves, then 0).");
    if (argc == 1) {
      fmt::print("{}", app.help());
      return 0;
    }
    app.parse(own_argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
  } catch (const CLI::ParseError& error) {
    // A misspelt name is the likely cause of whatever else is missing, but for words of a config, which are known
    // later.
    if (!app.remaining(true).empty() && !reached(&app)->get_allow_extras()) {
      return failed(unknown_argument(app), kUsage);
    }
    return failed(UsageError(error.what(), help_hint(app)), kUsage);
  } catch (const UsageError& error) {
    return failed(error, kUsage);
  } catch (const std::exception& error) {
    return failed(error, 1);
  } catch (...) {
    return failed(Error("something that is no exception was thrown"), 1);
  }
  return exit_code;
}

}  // namespace

}  // namespace trireme::cli

int main(int argc, char** argv) { return trireme::cli::run(argc, argv); }
