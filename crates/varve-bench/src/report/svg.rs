//! A small writer of SVG pictures.

use std::fmt::Write;

/// Where a text is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Anchor {
    /// At its start.
    Start,
    /// In its middle.
    Middle,
    /// At its end.
    End,
}

/// A picture in the making; lengths are pixels, the origin is the upper left corner.
pub(crate) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    /// An empty white picture.
    pub(crate) fn new(width: f64, height: f64) -> Self {
        let mut svg = Self { body: String::new(), width, height };
        svg.rectangle((0.0, 0.0), (width, height), "#ffffff");
        svg
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        self.body.push_str("  ");
        self.body.write_fmt(element).expect("writing to a string cannot fail");
        self.body.push('\n');
    }

    /// A filled rectangle.
    pub(crate) fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), fill: &str) {
        let ((x, y), (width, height)) = (at, size);
        self.push(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"/>"#
        ));
    }

    /// A straight line.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{stroke}" stroke-width="{width}"/>"#
        ));
    }

    /// A line through `points`; `dashes` is empty for an unbroken one.
    pub(crate) fn path(&mut self, points: &[(f64, f64)], stroke: &str, dashes: &str) {
        let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.push(format_args!(
            r#"<polyline points="{}" fill="none" stroke="{stroke}" stroke-width="2" stroke-dasharray="{dashes}"/>"#,
            list.join(" ")
        ));
    }

    /// A ring with a filled inside.
    pub(crate) fn circle(&mut self, at: (f64, f64), radius: f64, fill: &str, stroke: &str) {
        let (x, y) = at;
        self.push(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>"#
        ));
    }

    /// A line of text; `y` is its base line.
    pub(crate) fn text(&mut self, at: (f64, f64), size: f64, anchor: Anchor, fill: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = at;
        self.push(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{}</text>"#,
            escape(text)
        ));
    }

    /// The whole document.
    pub(crate) fn finish(self) -> String {
        let Self { body, width, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n{body}</svg>\n"
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Steps of an axis from 0 to at least `highest`: a round width, at most `count` of them.
pub(crate) fn step(highest: f64, count: u32) -> f64 {
    let rough = highest.max(f64::MIN_POSITIVE) / f64::from(count);
    let power = 10f64.powf(rough.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|nice| nice * power >= rough * (1.0 - 1e-9));
    nice.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out_of_its_element() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text((1.0, 2.0), 12.0, Anchor::Middle, "#000", "a<b & \"c\">");
        let text = svg.finish();
        assert!(text.contains("a&lt;b &amp; &quot;c&quot;&gt;</text>"), "{text}");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }

    #[test]
    fn every_element_is_closed() {
        let mut svg = Svg::new(100.0, 50.0);
        svg.line((0.0, 0.0), (1.0, 1.0), "#000", 1.0);
        svg.path(&[(0.0, 0.0), (5.0, 5.5)], "#111", "4 2");
        svg.circle((3.0, 3.0), 2.0, "#fff", "#000");
        let text = svg.finish();
        assert_eq!(text.matches('<').count(), text.matches("/>").count() + 2);
        assert!(text.contains("points=\"0.0,0.0 5.0,5.5\""));
    }

    #[test]
    fn steps_are_round_and_few() {
        let near = |left: f64, right: f64| (left - right).abs() < 1e-9;
        assert!(near(step(1.0, 5), 0.2) && near(step(2.3, 5), 0.5) && near(step(19.0, 5), 5.0));
        assert!(near(step(1.1, 12), 0.1) && near(step(1000.0, 10), 100.0));
    }
}
