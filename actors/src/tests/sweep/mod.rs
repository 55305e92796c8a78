//! Thousands of small worlds, each under a schedule that its seed decides.

mod cast;
mod crashes;
mod requests;
mod residency;
mod run;
