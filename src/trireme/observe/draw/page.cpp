#include "trireme/observe/draw/page.h"

#include <fmt/format.h>

#include <cmath>

namespace trireme {
namespace {

constexpr std::string_view kPageStyle = R"css(<style>
:root{color-scheme:light dark;--bg:#fff;--fg:#24292f;--soft:#606a75;--line:#e1e5ea;--strong:#8c959f;--panel:#f4f6f8;
--good:#1a7f37;--bad:#b42318;--neutral:#57606a}
@media (prefers-color-scheme:dark){:root{--bg:#0f1115;--fg:#e6e9ed;--soft:#9aa4af;--line:#2c3138;--strong:#6b747e;--panel:#1b1f25;
--good:#6bd57e;--bad:#ff8f80;--neutral:#b4bcc5}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:960px;padding:24px 20px 64px;background:var(--bg);color:var(--fg);font:15px/1.55 system-ui,"Segoe UI","DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:26px;line-height:1.25;margin:8px 0 20px}h2{font-size:19px;margin:36px 0 10px}
svg{display:block;max-width:100%;height:auto}body>svg,.row>svg{border:1px solid var(--line);border-radius:8px}
body>svg{width:100%;margin:18px 0}
.row{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:18px;margin:18px 0}.row>svg{width:100%}
.verdict{border-left:4px solid var(--neutral);background:var(--panel);padding:12px 16px;border-radius:0 8px 8px 0;margin:0 0 18px}
.verdict b{color:var(--neutral);margin-right:.4em}.good{border-color:var(--good)}.good b{color:var(--good)}.bad{border-color:var(--bad)}.bad b{color:var(--bad)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px;margin:18px 0}
.facts div{border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.facts dt{color:var(--soft);font-size:13px}.facts dd{margin:0;font-size:20px;font-weight:600;font-variant-numeric:tabular-nums}
.shares{display:flex;height:26px;border-radius:6px;overflow:hidden;margin:14px 0 8px;gap:1px}.shares i{display:block;min-width:2px;background:currentColor}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 14px;padding:0;list-style:none;font-size:14px}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:7px;background:currentColor}.key span{color:var(--soft);margin-left:6px;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto;margin:14px 0;overflow-wrap:normal}
table{border-collapse:collapse;font-size:14px}th,td{padding:5px 18px 5px 0;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
td:last-child:not(.number){white-space:normal;min-width:9em}
th{font-weight:600;border-bottom-color:var(--strong)}.number{text-align:right;font-variant-numeric:tabular-nums}
pre{overflow-x:auto;padding:12px 14px;background:var(--panel);border-radius:8px;font:13px/1.45 ui-monospace,"DejaVu Sans Mono",monospace;overflow-wrap:normal}
details{margin:14px 0}summary{cursor:pointer;color:var(--soft)}
@media print{details>pre{white-space:pre-wrap}body>svg,.row>svg,.facts div{break-inside:avoid}}
</style>
)css";

std::string_view class_of(Tone tone) { return tone == Tone::kGood ? " good" : tone == Tone::kBad ? " bad" : ""; }

}  // namespace

void HtmlPage::add_heading(std::string_view text) { body_ += fmt::format("<h2>{}</h2>\n", escape_html(text)); }
void HtmlPage::add_paragraph(std::string_view text) { body_ += fmt::format("<p>{}</p>\n", escape_html(text)); }
void HtmlPage::add_chart(const Chart& chart) { body_ += to_svg(chart); }
void HtmlPage::add_table(const Table& table) { body_ += "<div class=\"scroll\">\n" + table.to_html() + "</div>\n"; }

void HtmlPage::add_details(std::string_view summary, std::string_view text) {
  body_ +=
      fmt::format("<details><summary>{}</summary>\n<pre>{}</pre></details>\n", escape_html(summary), escape_html(text));
}

void HtmlPage::add_verdict(std::string_view verdict, Tone tone, std::string_view text) {
  body_ += fmt::format("<p class=\"verdict{}\">", class_of(tone));
  if (!verdict.empty()) body_ += fmt::format("<b>{}</b>", escape_html(verdict));
  body_ += fmt::format("{}</p>\n", escape_html(text));
}

void HtmlPage::add_facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  body_ += "<dl class=\"facts\">\n";
  for (const auto& [name, value] : facts) {
    body_ += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_html(name), escape_html(value));
  }
  body_ += "</dl>\n";
}

void HtmlPage::add_charts(const std::vector<Chart>& charts) {
  body_ += "<div class=\"row\">\n";
  for (const Chart& chart : charts) body_ += to_svg(chart);
  body_ += "</div>\n";
}

void HtmlPage::add_fractions(const std::vector<std::pair<std::string, double>>& parts) {
  double sum = 0;
  for (const auto& [name, size] : parts) {
    if (size > 0 && std::isfinite(size)) sum += size;
  }
  std::string bar, key;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [name, size] = parts[i];
    if (!(size > 0) || !std::isfinite(size)) continue;
    const double percent = size / sum * 100;
    const std::string text = escape_html(name), fraction = fmt::format("{:.{}f} %", percent, percent < 9.95 ? 1 : 0);
    const size_t colour = i % kNumColours;
    bar += fmt::format("<i class=\"tr-c{}\" style=\"width:{:.2f}%\" title=\"{}: {}\"></i>", colour, percent, text,
                       fraction);
    key += fmt::format("<li><i class=\"tr-c{}\"></i>{}<span>{}</span></li>\n", colour, text, fraction);
  }
  if (!bar.empty()) body_ += fmt::format("<div class=\"shares\">{}</div>\n<ul class=\"key\">\n{}</ul>\n", bar, key);
}

std::string HtmlPage::to_html() const {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n{1}{2}</head>\n"
      "<body>\n<h1>{0}</h1>\n{3}</body>\n</html>\n",
      escape_html(title_), kPictureStyle, kPageStyle, body_);
}

}  // namespace trireme
