//! Which packets somebody wants to see, in the words of a class.

use evenkeel_core::FlowKey;
use evenkeel_core::class_map::Match;
use evenkeel_settings::Diagnostics;

use crate::model::RouterConfig;

/// Reads a filter: nothing, for all packets; a flow, `10.0.0.1:5000->10.0.1.1:80/udp`; or tables as
/// in `match` of a class, without the brackets: `{ source = "10.0.0.0/8" }, { dscp = [46] }`.
///
/// # Errors
/// As for a class in a file; the line is that of a file that would be this filter.
pub fn parse_filter(text: &str) -> Result<Vec<Match>, Diagnostics> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if let Ok(flow) = text.parse::<FlowKey>() {
        return Ok(vec![of_flow(&flow)]);
    }
    // The parser of files, so that keys, ranges and errors are those of a class.
    let port = "[[port]]\nname = \"p\"\ninterface = \"p\"\n";
    let file = format!("[[class]]\nname = \"filter\"\nmatch = [{text}]\n{port}");
    let config = RouterConfig::parse(&file, "filter")?;
    Ok(config.classes.into_iter().next().map(|class| class.rules).unwrap_or_default())
}

fn of_flow(flow: &FlowKey) -> Match {
    Match {
        source: Some(flow.source.into()),
        destination: Some(flow.destination.into()),
        protocol: Some(flow.protocol),
        source_port: Some(flow.source_port..=flow.source_port),
        destination_port: Some(flow.destination_port..=flow.destination_port),
        ..Match::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_flow_or_rules_of_a_class() {
        let flow: FlowKey = "10.0.0.1:5000->10.0.1.1:80/udp".parse().unwrap();
        let other = FlowKey { source_port: 5_001, ..flow };
        let holds = |text: &str, of: &FlowKey| {
            parse_filter(text).unwrap().iter().any(|rule| rule.holds(of, 46))
        };
        assert_eq!(parse_filter("  ").unwrap(), []);
        assert!(holds("10.0.0.1:5000->10.0.1.1:80/udp", &flow));
        assert!(!holds("10.0.0.1:5000->10.0.1.1:80/udp", &other));
        let two = "{ destination_port = 22 }, { source = \"10.0.0.0/24\", dscp = [46] }";
        assert!(holds(two, &flow) && holds(two, &other));
        let error = parse_filter("{ source = \"10.0.0.300\" }").unwrap_err().to_string();
        assert!(error.contains("filter:") && error.contains("source"), "{error}");
        assert!(
            parse_filter("{ sauce = \"10.0.0.0/8\" }").unwrap_err().to_string().contains("source")
        );
    }
}
