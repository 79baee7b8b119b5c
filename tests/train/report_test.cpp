#include "train/report.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "train/report_curves.hpp"
#include "train/report_plot.hpp"
#include "train/report_summary.hpp"
#include "train/report_text.hpp"

namespace octet::train {
namespace {

RunRecord record(const std::string& recipe, double factor) {
    RunRecord run;
    run.description.recipe = recipe;
    run.description.name = "a<b>&\"c\"";
    for (std::int64_t step = 1; step <= 30; ++step) {
        StepMetrics m;
        m.step = step;
        m.loss = factor * (1 + 10.0 / static_cast<double>(step));
        m.tokens = 100;
        m.seconds = 0.5;
        m.moe_layers = {1};
        m.tokens_per_expert = {{150, 50}};
        if (recipe != "bf16" && step % 10 == 0) m.scales = {{"gate_up.input", 1, 0.5, 8, 1000, 10, 20}};
        run.steps.push_back(m);
    }
    run.evaluations = {{10, 3 * factor, 100}, {30, 2 * factor, 100}};
    return run;
}

TEST(Report, SummariesAreOfTheEnd) {
    const std::vector<RunSummary> s = summarize({record("bf16", 1), record("mxfp8", 1.01)});
    EXPECT_NEAR(s[1].train_gap_percent, 1.0, 1e-9);
    EXPECT_NEAR(s[1].eval_gap_percent, 1.0, 1e-9);
    EXPECT_EQ(s[0].eval_loss, 2.0);
    EXPECT_EQ(s[0].tokens_per_second, 200.0);
    EXPECT_EQ(s[0].imbalance, 1.5);
    EXPECT_TRUE(std::isnan(summarize({record("mxfp8", 1)})[0].train_gap_percent));
}

TEST(Report, CurvesFollowTheRecords) {
    const std::vector<RunRecord> runs{record("bf16", 1), record("mxfp8", 1.02)};
    const LinePlot gap = gap_plot(runs);
    ASSERT_GE(gap.series.size(), 2u);
    for (const double percent : gap.series[0].y) EXPECT_NEAR(percent, 2.0, 1e-9);
    EXPECT_TRUE(gap_plot({runs[1]}).series.empty());
    const HeatPlot load = load_plot(runs[0]);
    ASSERT_EQ(load.values.size(), 2u);
    EXPECT_EQ(load.values[0][0], 1.5);
    EXPECT_EQ(load.values[1][0], 0.5);
    EXPECT_NEAR(underflow_plot(runs[1]).series.at(0).y.at(0), 1.0, 1e-12);
    EXPECT_NEAR(saturation_plot(runs[1]).series.at(0).y.at(0), 2.0, 1e-12);
    EXPECT_EQ(scale_plot(runs[1]).series.at(0).y.at(0), 3.0);
}

TEST(Report, WithoutAFolderForTemporaryFilesItHasNoPictures) {
    const char* before = std::getenv("TMPDIR");
    const std::string kept = before == nullptr ? "" : before;
    setenv("TMPDIR", "/there/is/no/such/folder", 1);
    const std::string page = report_html({record("bf16", 1)});
    before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
    EXPECT_EQ(page.find("<img"), std::string::npos);
    EXPECT_NE(page.find("<table>"), std::string::npos);
}

TEST(Report, NamesAreEscaped) {
    const std::string page = report_html({record("bf16", 1), record("mxfp8", 1)});
    EXPECT_EQ(page.find("a<b>"), std::string::npos);
    EXPECT_NE(page.find("a&lt;b&gt;&amp;&quot;c&quot;"), std::string::npos);
}

TEST(Report, SurvivesADivergedRun) {
    RunRecord run = record("mxfp8", 1);
    run.steps[20].loss = std::numeric_limits<double>::quiet_NaN();
    run.steps[21].gradient_norm = std::numeric_limits<double>::infinity();
    run.evaluations.clear();
    EXPECT_NE(report_html({run}).find("</html>"), std::string::npos);
    EXPECT_NE(report_html({}).find("no runs"), std::string::npos);
    EXPECT_NE(report_html({RunRecord{}}).find("</html>"), std::string::npos);
}

TEST(Report, Base64) {
    EXPECT_EQ(base64(""), "");
    EXPECT_EQ(base64("f"), "Zg==");
    EXPECT_EQ(base64("fo"), "Zm8=");
    EXPECT_EQ(base64("foo"), "Zm9v");
    EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

TEST(Report, PicturesAreSvg) {
    if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not here";
    const std::string svg = draw(train_loss_plot({record("fp8_rowwise", 1)}));
    EXPECT_NE(svg.find("<svg"), std::string::npos);
    EXPECT_NE(svg.find("fp8_rowwise"), std::string::npos);  // not fp8 with a subscript
    EXPECT_NE(draw(load_plot(record("bf16", 1))).find("<svg"), std::string::npos);
}

}  // namespace
}  // namespace octet::train
