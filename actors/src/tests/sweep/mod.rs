//! Thousands of small worlds, each under a schedule that its seed decides.

mod anything;
mod cancels;
mod cast;
mod crashes;
mod drains;
mod follow_ups;
mod one_shots;
mod publishing;
mod requests;
mod residency;
mod run;
mod setting_up;
mod settling;
mod starting;
