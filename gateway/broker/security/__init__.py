"""Who may connect and what they may do: users, passcodes, access rules."""
