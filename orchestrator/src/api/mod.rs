//! HTTP routes, auth bands, feeds (spec 12).
