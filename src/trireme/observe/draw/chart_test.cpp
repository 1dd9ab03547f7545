// Ticks that people would choose, whole and escaped documents, and data that cannot be drawn.
#include "trireme/observe/draw/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/observe/draw/page.h"

namespace trireme {
namespace {

std::vector<std::string> labels(double low, double high, Scale scale, int wanted) {
  std::vector<std::string> found;
  for (const Tick& tick : choose_ticks(low, high, scale, wanted)) {
    EXPECT_GE(tick.value, low - 1e-9 * std::fabs(low));
    EXPECT_LE(tick.value, high * (1 + 1e-9));
    found.push_back(tick.label);
  }
  return found;
}

using Labels = std::vector<std::string>;

size_t times_in(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Chart example_chart() {
  Chart chart;
  chart.title = "All-reduce <8 ranks> & \"more\"";
  chart.x = {"message size", Scale::kLog, {}, {}};
  chart.y = {"time", Scale::kLog, {}, {}};
  Series measured, predicted;
  measured.name = "ring";
  predicted.name = "ring, predicted";
  predicted.dashed = true;
  predicted.color = 0;
  for (double n = 4096; n <= 64 << 20; n *= 4) {
    measured.points.push_back({n, 3 + n * 1e-4});
    predicted.points.push_back({n, 2 + n * 1e-4});
  }
  chart.series = {measured, predicted};
  return chart;
}

TEST(PlotTicks, LogarithmicAreDecades) {
  EXPECT_EQ(labels(0.5, 20'000, Scale::kLog, 6), (Labels{"1", "10", "100", "1,000", "10,000"}));
  EXPECT_EQ(labels(1.5, 30, Scale::kLog, 6), (Labels{"2", "5", "10", "20"}));
  EXPECT_GE(labels(1.02, 1.09, Scale::kLog, 6).size(), 2u);
}

TEST(PlotTicks, LinearAreRound) {
  EXPECT_EQ(labels(0, 1, Scale::kLinear, 5), (Labels{"0", "0.2", "0.4", "0.6", "0.8", "1"}));
  EXPECT_EQ(labels(-1, 1.2, Scale::kLinear, 4), (Labels{"-1", "0", "1"}));
  EXPECT_EQ(labels(0, 3000, Scale::kLinear, 3), (Labels{"0", "1,000", "2,000", "3,000"}));
  EXPECT_EQ(labels(0, 2e7, Scale::kLinear, 2), (Labels{"0", "10M", "20M"}));
}

TEST(Plot, SvgHoldsEverything) {
  const std::string svg = to_svg(example_chart());
  EXPECT_EQ(svg.find("<8 ranks>"), std::string::npos);
  EXPECT_NE(svg.find("All-reduce &lt;8 ranks&gt; &amp; &quot;more&quot;"), std::string::npos);
  for (const char* part : {">10,000<", ">100<", ">message size<", ">time<", ">ring<", ">ring, predicted<",
                           "prefers-color-scheme", "<title>ring\n4,096: 3.41</title>"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(times_in(svg, "<title>"), 16u);
  EXPECT_EQ(times_in(svg, "class=\"tr-line tr-c0 tr-dash\""), 2u);  // the line and its legend
  EXPECT_EQ(times_in(svg, "class=\"tr-dot tr-c0\""), 9u);           // 8 points and the legend
  EXPECT_EQ(times_in(svg, "<g"), times_in(svg, "</g>"));
  EXPECT_EQ(times_in(svg, "<svg"), times_in(svg, "</svg>"));
  EXPECT_EQ(times_in(svg, "http"), 1u) << "nothing but the name space is outside";
}

TEST(Plot, WhatCannotBeDrawnLeavesAGap) {
  Chart chart = example_chart();
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  chart.series = {{"a", {{1, 1}, {2, 0}, {4, 4}, {8, nan}, {inf, 1}, {-3, 2}, {16, 3}, {32, 3}}}};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(times_in(svg, "class=\"tr-line"), 3u);
  EXPECT_EQ(times_in(svg, "<title>"), 4u);
}

TEST(Plot, EmptyAndDegenerate) {
  EXPECT_NE(to_svg({}).find("no data"), std::string::npos);
  for (const Scale scale : {Scale::kLinear, Scale::kLog}) {
    for (const double value : {0.0, 1e-300, 5.0, 1e300}) {
      Chart chart;
      chart.x.scale = chart.y.scale = scale;
      chart.series = {{"one", {{value, value}}}};
      const std::string svg = to_svg(chart);
      EXPECT_EQ(svg.find("nan"), std::string::npos) << value;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << value;
    }
  }
  Chart tiny = example_chart();
  tiny.width = tiny.height = 1;
  EXPECT_NE(to_svg(tiny).find("</svg>"), std::string::npos);
}

TEST(Plot, ManyPointsStaySmall) {
  Chart chart;
  chart.series = {{"loss", {}}};
  for (int i = 0; i < 200'000; ++i) chart.series[0].points.push_back({i, std::sin(i * 0.01)});
  EXPECT_LT(to_svg(chart).size(), 150'000u);
}

TEST(Plot, LimitsOfTheAxisAreKept) {
  Chart chart;
  chart.y.min = 0;
  chart.y.max = 10;
  chart.series = {{"a", {{0, 5}, {1, 1000}}}};
  const std::string svg = to_svg(chart);
  EXPECT_NE(svg.find(">10<"), std::string::npos);
  EXPECT_EQ(svg.find(">1,000<"), std::string::npos);
}

TEST(Plot, FaintLinesAreUnderTheOthersAndSilent) {
  Chart chart = example_chart();
  chart.series[1].dashed = false;
  chart.series[1].faint = true;
  const std::string svg = to_svg(chart);
  EXPECT_EQ(times_in(svg, "<title>"), 8u);
  EXPECT_LT(svg.find("class=\"tr-line tr-c0 tr-faint\""), svg.find("class=\"tr-line tr-c0\""));
}

TEST(Plot, PartsOfAPage) {
  HtmlPage page("p");
  page.add_verdict("<v>", Tone::kBad, "t & t");
  page.add_facts({{"<n>", "1"}});
  page.add_charts({example_chart(), example_chart()});
  page.add_fractions({{"a", 1}, {"none", 0}, {"b<", 3}, {"wrong", std::nan("")}, {"tiny", 0.004}});
  page.add_details("s>", "l1\nl2");
  const std::string html = page.to_html();
  for (const char* part : {"<p class=\"verdict bad\"><b>&lt;v&gt;</b>t &amp; t</p>", "<dt>&lt;n&gt;</dt><dd>1</dd>",
                           "width:24.98%", "b&lt;<span>75 %</span>", "tiny<span>0.1 %</span>",
                           "<details><summary>s&gt;</summary>\n<pre>l1\nl2</pre></details>"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(html.find("none<span>"), std::string::npos);
  EXPECT_EQ(html.find("wrong"), std::string::npos);
  HtmlPage empty("p");
  empty.add_fractions({});
  EXPECT_EQ(empty.to_html().find("<ul"), std::string::npos);
}

TEST(Plot, WordsInTablesStayWholeOnAPhone) {
  // The page breaks words anywhere, which would let a column shrink to one letter, and rows grow as high as it is long.
  const std::string html = HtmlPage("p").to_html();
  const size_t rule = html.find("\n.scroll{");
  ASSERT_NE(rule, std::string::npos);
  EXPECT_NE(html.substr(rule, html.find('}', rule) - rule).find("overflow-wrap:normal"), std::string::npos);
}

TEST(Plot, Page) {
  HtmlPage page("a <b>");
  page.add_heading("h & h");
  page.add_paragraph("p < p");
  page.add_chart(example_chart());
  Table table({"x"});
  table.add_row({"<td>"});
  page.add_table(table);
  const std::string html = page.to_html();
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  for (const char* part :
       {"<title>a &lt;b&gt;</title>", "<h2>h &amp; h</h2>", "<p>p &lt; p</p>", "<td>&lt;td&gt;</td>", "</html>"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace trireme
